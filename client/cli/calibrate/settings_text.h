// The settings of a calibration as text, in which two runs are compared: CalibrationSettings::Describe writes it, a
// state file keeps it. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace firn::cli {

// What differs between two of these texts, by the options of `firn calibrate` that say it, with both values:
// "--outliers 10, now 20; --window 2048, now 1024". Empty where they are equal.
std::string SettingsDifference(std::string_view before, std::string_view now);

// Whether what was measured as `before` has all that `now` asks for: the same settings, but for an artifact of values
// or errors of heads that are there and not wanted.
bool SettingsCover(std::string_view before, std::string_view now);

}  // namespace firn::cli
