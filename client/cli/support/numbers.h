// Checks of numeric options. Threads: pure functions.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace firn::cli {

// What a T holds, in decimal digits. CLI11 alone takes -1 for the largest number.
template <typename T>
CLI::Validator WholeNumber() {
  auto check = [](const std::string& text) {
    T value = 0;
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && stop == text.data() + text.size()) return std::string();
    return fmt::format("Value {} not in range 0 to {}", text, std::numeric_limits<T>::max());
  };
  return CLI::Validator(check, "", "whole number");
}

}  // namespace firn::cli
