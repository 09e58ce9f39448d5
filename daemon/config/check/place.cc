#include "daemon/config/check/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace firn {
namespace {

// Of a directory: empty where files can be made and removed in it.
std::string ObstacleIn(const std::string& directory) {
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return "";
  return fmt::format("cannot write in {}: {}", directory, std::strerror(errno));
}

// Of something missing: the nearest parent that exists must be a directory to make it in.
std::string ObstacleAbove(std::filesystem::path path) {
  struct stat facts = {};
  do {
    path = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    if (::stat(path.c_str(), &facts) == 0) {
      if (!S_ISDIR(facts.st_mode)) return fmt::format("{} is not a directory", path.string());
      return ObstacleIn(path.string());
    }
  } while (errno == ENOENT || errno == ENOTDIR);
  return fmt::format("stat {}: {}", path.string(), std::strerror(errno));
}

}  // namespace

PlaceFacts InspectPlace(const std::string& path) {
  PlaceFacts place;
  std::error_code error;
  place.real = std::filesystem::weakly_canonical(path, error).string();
  if (error) place.real = std::filesystem::path(path).lexically_normal().string();
  while (place.real.size() > 1 && place.real.back() == '/') place.real.pop_back();
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0) {
    int cause = errno;
    if (cause == ENOENT || cause == ENOTDIR) {
      place.obstacle = ObstacleAbove(path);
      // A link to nothing: neither there nor to be made.
      if (place.obstacle.empty() && ::lstat(path.c_str(), &facts) == 0) place.obstacle = path + " is a dangling link";
    } else {
      place.obstacle = fmt::format("stat {}: {}", path, std::strerror(cause));
    }
    return place;
  }
  if (S_ISDIR(facts.st_mode)) {
    place.kind = PlaceKind::kDirectory;
    place.obstacle = ObstacleIn(path);
  } else {
    place.kind = S_ISREG(facts.st_mode)    ? PlaceKind::kRegular
                 : S_ISSOCK(facts.st_mode) ? PlaceKind::kSocket
                                           : PlaceKind::kOther;
  }
  return place;
}

}  // namespace firn
