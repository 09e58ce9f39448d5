#include "tests/support/loop_file_system.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/units.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

}  // namespace

LoopFileSystem::LoopFileSystem(uint64_t bytes, Disk disk) : disk_(disk) {
  std::string pattern = (fs::temp_directory_path() / "firn-loop-XXXXXX").string();
  folder_ = ::mkdtemp(pattern.data());
  std::ofstream(folder_ / "image").close();
  fs::resize_file(folder_ / "image", bytes);
  fs::create_directory(path());
  mounted_ = ::geteuid() == 0 && Run("mkfs.ext4 -q -F -m 0 " + Quoted("image")) &&
             (disk == Disk::kSound || ServeFailing()) && Mount();
}

LoopFileSystem::~LoopFileSystem() {
  if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  if (disk_ == Disk::kFailing) ::umount2((folder_ / "served").c_str(), MNT_DETACH);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string LoopFileSystem::Said() const {
  std::ifstream said(folder_ / "said");
  return {std::istreambuf_iterator<char>(said), {}};
}

std::string LoopFileSystem::WhyNot() const {
  if (mounted_) return "";
  if (::geteuid() != 0) return "a loop device needs root";
  return "no loop device could be mounted: " + Said();
}

bool LoopFileSystem::Run(const std::string& command) const {
  return std::system(("{ " + command + "; } >>" + Quoted("said") + " 2>&1").c_str()) == 0;
}

bool LoopFileSystem::Mount() const {
  if (disk_ == Disk::kSound) return Run("mount -o loop " + Quoted("image") + " " + Quoted("mount"));
  // Past the page cache of what is served, where reads would not fail.
  return Run("device=$(losetup --find --show --direct-io=on " + Quoted("served") + ") && { mount \"$device\" " +
             Quoted("mount") + "; mounted=$?; losetup --detach \"$device\"; [ $mounted -eq 0 ]; }");
}

// The image once more, as a file that fails at a word: through a block server that injects errors while a file exists.
bool LoopFileSystem::ServeFailing() const {
  std::ofstream(folder_ / "served").close();
  return Run("(nbdfuse --pidfile " + Quoted("pid") + " " + Quoted("served") +
             " --command nbdkit -s --filter=error file " + Quoted("image") +
             " error=EIO error-rate=100% error-file=" + Quoted("fails") + " &)") &&
         Eventually([this] { return fs::exists(folder_ / "pid"); }, 10'000);
}

bool LoopFileSystem::Fill() const {
  int fd = ::open((path() / "filler").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  std::vector<char> zeros(kMiB);
  for (size_t bytes = zeros.size(); bytes >= 1; bytes /= 2) {
    while (::write(fd, zeros.data(), bytes) == static_cast<ssize_t>(bytes)) {
    }
  }
  ::fsync(fd);
  ::close(fd);
  return true;
}

void LoopFileSystem::Free() const { fs::remove(path() / "filler"); }

void LoopFileSystem::FailDisk() const { std::ofstream(folder_ / "fails").close(); }

void LoopFileSystem::MendDisk() const { fs::remove(folder_ / "fails"); }

bool LoopFileSystem::Remount() const {
  // What a killed process had open closes a little later. e2fsck says 1 where it has put something right.
  return Eventually([this] { return Run("umount " + Quoted("mount")); }, 10'000) &&
         Run("e2fsck -p " + Quoted(disk_ == Disk::kSound ? "image" : "served") + " || [ $? -eq 1 ]") && Mount();
}

}  // namespace firn
