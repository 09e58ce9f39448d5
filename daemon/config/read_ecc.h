// Error correction of a tier as words: `none`, `secded`, `rs`, `graded`, or class by class.
#pragma once

#include "base/toml/toml_section.h"
#include "codecs/ecc/ecc.h"

namespace firn {

// Leaves `*out` as it is where the key is absent or wrong. `strong` is what `graded` protects the header, metadata and
// the base with.
void ReadEcc(TomlSection& section, std::string_view key, EccCode strong, EccPolicy* out);

}  // namespace firn
