// Checks of numeric options. Threads: pure functions.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace firn::cli {

// From `least` to `most`, in decimal digits. CLI11 alone takes -1 for the largest number.
template <typename T>
CLI::Validator WholeNumber(T least = 0, T most = std::numeric_limits<T>::max()) {
  auto check = [least, most](const std::string& text) {
    T value = 0;
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    bool right = error == std::errc() && stop == text.data() + text.size() && value >= least && value <= most;
    if (right) return std::string();
    if (most == std::numeric_limits<T>::max() && error != std::errc::result_out_of_range) {
      return fmt::format("Value {} is no whole number of {} or more", text, least);
    }
    return fmt::format("Value {} not in range {} to {}", text, least, most);
  };
  return CLI::Validator(check, "", "whole number");
}

}  // namespace firn::cli
