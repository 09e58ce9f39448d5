// Damage to what a cold tier keeps in files, as media do it: to segments while the daemon runs, to the index while it
// does not.
//
// Threads: any. Only sealed segments are damaged: the daemon goes on writing to the others, and what it writes there
// after the damage would have to be excused with what it wrote before. Errors: NotFound when there is nothing to damage
// yet; what the file system says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "absl/status/statusor.h"

namespace firn::cli {

enum class SegmentDamage : uint8_t { kFlip, kZero, kSwap, kTruncate, kDelete };

// Both say what they did.
absl::StatusOr<std::string> DamageSegment(SegmentDamage how, const std::filesystem::path& cold,
                                          std::mt19937_64& random);
absl::StatusOr<std::string> DamageIndex(const std::filesystem::path& cold, std::mt19937_64& random);

// Why the file system of `folder` is not one to fill up; empty: it is a small one in a file, and `folder` is all of it.
std::string WhyNotFill(const std::filesystem::path& folder);
// Takes all the room there is, with the file that is named.
absl::Status FillUp(const std::filesystem::path& file);

}  // namespace firn::cli
