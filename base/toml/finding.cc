#include "base/toml/finding.h"

#include <fmt/format.h>

#include <algorithm>

namespace firn {
namespace {

// Bytes of the well-formed UTF-8 character that `text` begins with; 0 when it is not one, or is a control character.
size_t PrintableCharacter(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // U+0080 to U+009F are control characters, too.
  return byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : length;
}

}  // namespace

std::string Printable(std::string_view text, size_t bytes_max) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    size_t length = PrintableCharacter(text.substr(at));
    if (at + std::max<size_t>(length, 1) > bytes_max) {
      return out + fmt::format("... ({} bytes)", text.size());
    }
    if (length > 0) {
      out += text.substr(at, length);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
    }
    at += std::max<size_t>(length, 1);
  }
  return out;
}

std::string FindingText(const Finding& finding) {
  std::string text = Printable(finding.key);
  if (!finding.value.empty()) text += " = " + Printable(finding.value);
  text += ": " + Printable(finding.what, 1000);
  if (finding.line != 0) text += fmt::format(" (line {})", finding.line);
  return text;
}

std::vector<std::string> FindingLines(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    if (lines.size() == kFindingsShownMax) {
      lines.push_back(fmt::format("... and {} more", findings.size() - kFindingsShownMax));
      break;
    }
    lines.push_back(FindingText(finding));
  }
  return lines;
}

}  // namespace firn
