#include "tiers/warm/memory/streaming_copy.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace firn {
namespace {

#if defined(__SSE2__)
constexpr size_t kLine = 64;
// Pages that are copied side by side: one stream of stores alone does not keep the memory busy.
constexpr size_t kPages = 4;
constexpr size_t kPage = 4096;

void StreamLine(uint8_t* to, const uint8_t* from) {
  __m128i line[4];
  for (int i = 0; i < 4; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line[i]);
}

void StreamPages(uint8_t* to, const uint8_t* from) {
  for (size_t at = 0; at < kPage; at += kLine) {
    for (size_t page = 0; page < kPages; ++page) StreamLine(to + page * kPage + at, from + page * kPage + at);
  }
}
#endif

void StreamPiece(uint8_t* to, const uint8_t* from, size_t bytes) {
#if defined(__SSE2__)
  size_t head = std::min<size_t>(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  constexpr size_t kMany = kPages * kPage;
  for (; bytes >= kMany; to += kMany, from += kMany, bytes -= kMany) StreamPages(to, from);
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) StreamLine(to, from);
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace

void CopyStreaming(const RunBytes& source, const MutableRunBytes& target) {
  size_t piece = 0, offset = 0;
  for (std::span<const uint8_t> from : source.spans()) {
    while (!from.empty()) {
      FIRN_CHECK(piece < target.spans().size());
      std::span<uint8_t> to = target.spans()[piece].subspan(offset);
      size_t count = std::min(from.size(), to.size());
      StreamPiece(to.data(), from.data(), count);
      from = from.subspan(count);
      offset += count;
      if (offset == target.spans()[piece].size()) {
        ++piece;
        offset = 0;
      }
    }
  }
#if defined(__SSE2__)
  _mm_sfence();  // Streaming stores are not ordered by the locks that publish the copy.
#endif
}

}  // namespace firn
