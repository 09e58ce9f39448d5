// A shell command, its exit code and all that it printed.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace firn {

struct Ended {
  int code = -1;  // -1: a signal ended it, or it did not start.
  std::string text;
};

inline Ended RunCommand(const std::string& command) {
  Ended ended;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ended;
  char buffer[4096];
  while (size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) ended.text.append(buffer, count);
  int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

}  // namespace firn
