// What is at a path, and whether the daemon could work there. Threads: any; nothing is created or opened.
#pragma once

#include <cstdint>
#include <string>

namespace firn {

enum class PlaceKind : uint8_t { kMissing, kDirectory, kRegular, kSocket, kOther };

struct PlaceFacts {
  PlaceKind kind = PlaceKind::kMissing;
  // Why not: a directory in which this process cannot make files, something missing that it cannot make. Empty: it can.
  std::string obstacle;
  // The same for every way to write the path: symbolic links followed, "." and ".." gone.
  std::string real;
};

PlaceFacts InspectPlace(const std::string& path);

}  // namespace firn
