// The child's loop: messages in, jobs to the device, answers out, until the parent is gone.
//
// Threads: one runs it; the device's answer from their own. Ownership: borrows the device. Errors: what the parent may
// not say ends the child, with a line on stderr; jobs that do not pass CheckJob are answered with InvalidArgument.
#pragma once

#include "codecs/record.h"
#include "tiers/hot/child/device.h"
#include "tiers/hot/protocol/unique_fd.h"

namespace firn::gpu {

// Returns the process's exit code: 0 when the parent closed its end.
int RunChild(UniqueFd socket, Device* device);

// A RecodeJob's headers, and that both sides have the bytes that these say.
struct Recoding {
  RecordHeader source, target;
  RunMask present;  // Runs of the source that are at hand.
};
absl::StatusOr<Recoding> ParseRecoding(const RecodeJob& job);

// The header of the record that an ImportJob or an ExportJob is about, and which of its runs are placed; that the rows
// hold such a block, with `ends` as of CheckDeviceRows. Unimplemented but for FP16 and BF16.
struct Moving {
  RecordHeader header;
  RunMask present;
  std::vector<uint64_t> ends;
};
// InvalidArgument unless a record's runs are nothing but a block's values as they are, as long as its shape says.
absl::Status CheckImport(const RecordHeader& header);
absl::StatusOr<Moving> ParseMoving(const std::vector<uint8_t>& header, const DeviceRows& rows,
                                   const std::array<std::vector<Place>, kRunIds>& places);

}  // namespace firn::gpu
