// Spans of bytes and little-endian access to them. Every persistent format of the project is little-endian.
//
// Readers and writers are bounds-checked: a reader that runs past the end turns !ok() and returns zeros from then on,
// so a parser may check once at the end. Not thread-safe; they borrow the memory they are given.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace firn {

using ByteSpan = std::span<const uint8_t>;
using MutableByteSpan = std::span<uint8_t>;

inline ByteSpan AsBytes(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }
inline std::string_view AsText(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "FirnKV's formats are read and written in place");

template <typename T>
requires std::is_trivially_copyable_v<T> T LoadLe(const uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

template <typename T>
requires std::is_trivially_copyable_v<T>
void StoreLe(uint8_t* target, T value) { std::memcpy(target, &value, sizeof(T)); }

class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

  template <typename T>
  T Read() {
    if (!Need(sizeof(T))) return T{};
    T value = LoadLe<T>(bytes_.data() + offset_);
    offset_ += sizeof(T);
    return value;
  }
  ByteSpan ReadBytes(size_t count) {
    if (!Need(count)) return {};
    ByteSpan out = bytes_.subspan(offset_, count);
    offset_ += count;
    return out;
  }
  void Skip(size_t count) {
    if (Need(count)) offset_ += count;
  }

  bool ok() const { return ok_; }
  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

 private:
  bool Need(size_t count) {
    if (!ok_ || bytes_.size() - offset_ < count) ok_ = false;
    return ok_;
  }

  ByteSpan bytes_;
  size_t offset_ = 0;
  bool ok_ = true;
};

class ByteWriter {
 public:
  template <typename T>
  void Write(T value) {
    size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    StoreLe<T>(bytes_.data() + at, value);
  }
  void WriteBytes(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void WriteZeros(size_t count) { bytes_.resize(bytes_.size() + count); }

  size_t size() const { return bytes_.size(); }
  std::vector<uint8_t>& bytes() { return bytes_; }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace firn
