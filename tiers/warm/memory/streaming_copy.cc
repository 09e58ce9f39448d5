#include "tiers/warm/memory/streaming_copy.h"

#include <cstring>

#include "base/check.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace firn {
namespace {

void StreamPiece(uint8_t* to, const uint8_t* from, size_t bytes) {
#if defined(__SSE2__)
  size_t head = std::min<size_t>(bytes, (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; to += 64, from += 64, bytes -= 64) {
    __m128i line[4];
    for (int i = 0; i < 4; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line[i]);
  }
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
