#include "daemon/config/read_ecc.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace firn {
namespace {

constexpr const char* kAllowed =
    "allowed: \"none\", \"secded\", \"rs\", \"graded\", or a code for each class that has one, such as "
    "\"meta=rs,base=secded,p4=secded,p8=none\"";

std::optional<EccCode> CodeNamed(std::string_view name) {
  for (EccCode code : {EccCode::kNone, EccCode::kSecded, EccCode::kReedSolomon}) {
    if (EccCodeName(code) == name) return code;
  }
  return std::nullopt;
}

std::optional<ProtectionClass> ClassNamed(std::string_view name) {
  if (name == "meta") return ProtectionClass::kMeta;
  if (name == "base") return ProtectionClass::kBase;
  if (name == "p4") return ProtectionClass::kP4;
  if (name == "p8") return ProtectionClass::kP8;
  return std::nullopt;
}

std::optional<EccPolicy> ByClass(const std::string& text) {
  EccPolicy policy;
  uint32_t seen = 0;
  for (std::string_view item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    size_t equals = item.find('=');
    if (equals == item.npos) return std::nullopt;
    auto of = ClassNamed(item.substr(0, equals));
    auto code = CodeNamed(item.substr(equals + 1));
    if (!of.has_value() || !code.has_value() || (seen >> static_cast<uint32_t>(*of) & 1)) return std::nullopt;
    seen |= 1u << static_cast<uint32_t>(*of);
    policy = policy.With(*of, *code);
  }
  return policy;
}

}  // namespace

void ReadEcc(TomlSection& section, std::string_view key, EccCode strong, EccPolicy* out) {
  if (!section.Has(key)) return;
  std::string text;
  section.String(key, &text, 64);
  if (text.empty()) return;  // No string, or too long a one: said already.
  if (text == "graded") {
    *out = EccPolicy::Graded(strong);
  } else if (auto code = CodeNamed(text); code.has_value()) {
    *out = EccPolicy::Uniform(*code);
  } else if (auto policy = ByClass(text); policy.has_value()) {
    *out = *policy;
  } else {
    section.Error(key, kAllowed);
  }
}

}  // namespace firn
