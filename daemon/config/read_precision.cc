#include "daemon/config/read_precision.h"

#include <fmt/format.h>

#include <string>

namespace firn {
namespace {

bool ParseClass(std::string_view text, PrecisionClass* out, bool* is_fp8) {
  *is_fp8 = text == "fp8";
  if (text == "exact" || text == "fp16" || text == "bf16") {
    *out = PrecisionClass::kExact;
  } else if (text == "int8" || text == "fp8") {
    *out = PrecisionClass::k8Bit;
  } else if (text == "int4") {
    *out = PrecisionClass::k4Bit;
  } else if (text == "int2") {
    *out = PrecisionClass::k2Bit;
  } else {
    return false;
  }
  return true;
}

}  // namespace

void ReadPrecision(TomlSection& section, std::string_view key, ClassPair* out, bool* use_fp8) {
  const std::string allowed = fmt::format(
      "allowed: \"fp16\" or \"bf16\" (as given), {}\"int8\", \"int4\", \"int2\", or {{ k = ..., v = ... }} of these",
      use_fp8 != nullptr ? "\"fp8\", " : "");
  std::string k, v;
  if (!section.Pair(key, &k, &v, allowed)) return;
  ClassPair classes;
  bool k_fp8 = false, v_fp8 = false;
  bool known = ParseClass(k, &classes.k, &k_fp8) && ParseClass(v, &classes.v, &v_fp8);
  if (!known || ((k_fp8 || v_fp8) && use_fp8 == nullptr)) return section.Error(key, allowed);
  bool k_int8 = classes.k == PrecisionClass::k8Bit && !k_fp8;
  bool v_int8 = classes.v == PrecisionClass::k8Bit && !v_fp8;
  if ((k_fp8 && v_int8) || (v_fp8 && k_int8))
    return section.Error(key, "allowed: either fp8 or int8 as a tier's 8-bit class, not both");
  *out = classes;
  if (use_fp8 != nullptr) *use_fp8 = k_fp8 || v_fp8;
}

}  // namespace firn
