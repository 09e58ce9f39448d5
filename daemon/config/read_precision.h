// The precision of a tier, as a configuration writes it. Threads: pure.
#pragma once

#include <string_view>

#include "base/toml/toml_section.h"
#include "codecs/types.h"

namespace firn {

// "int8", or { k = "int8", v = "int4" }. `use_fp8` may be null: then "fp8" is refused. Leaves both as they are where
// the key is absent or wrong, which the section reports.
void ReadPrecision(TomlSection& section, std::string_view key, ClassPair* out, bool* use_fp8);

}  // namespace firn
