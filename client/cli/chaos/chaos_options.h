// What `firn chaos` is asked for. Threads: values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace firn::cli {

struct ChaosOptions {
  std::string firnd;             // The program.
  std::filesystem::path folder;  // Of this run alone; everything lies below it.
  uint32_t seconds = 60;
  uint64_t seed = 0;
  std::string ecc = "none";
  uint32_t clients = 2;
  std::string gpu;  // "cpu", "cuda": the hot tier has a GPU child; empty: it is in memory.
  std::function<void(const std::string& line)> tell = [](const std::string&) {};  // Of each fault, as it happens.
};

}  // namespace firn::cli
