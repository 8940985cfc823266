#include "tests/comm/support/traces.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace tutti::comm {
namespace {

std::vector<std::string> lines_with(const char* path, const std::string& part) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find(part) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> names_in(const char* folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> new_ones(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  std::vector<std::string> fresh;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(fresh));
  return fresh;
}

std::vector<std::string> common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

Traces look_for_traces() {
  Traces traces;
  traces.descriptors = static_cast<int>(names_in("/proc/self/fd").size());
  traces.segments = static_cast<int>(lines_with("/proc/self/maps", "memfd:tutti").size());
  for (const std::string& name : names_in("/dev/shm")) {
    if (name.find("tutti") != std::string::npos) traces.files.push_back(name);
  }
  for (const std::string& line : lines_with("/proc/net/unix", "@tutti"))
    traces.sockets.push_back(line.substr(line.find('@')));
  std::sort(traces.sockets.begin(), traces.sockets.end());
  siginfo_t info{};
  traces.children = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  return traces;
}

std::string left_behind(const Traces& before) {
  std::string text;
  std::vector<std::string> files, sockets;
  for (int look = 0; look < 40; ++look) {
    const Traces now = look_for_traces();
    files = look == 0 ? now.files : common(files, now.files);
    sockets = look == 0 ? now.sockets : common(sockets, now.sockets);
    text = "";
    if (now.descriptors > before.descriptors)
      text += fmt::format("{} descriptors; ", now.descriptors - before.descriptors);
    if (now.segments > before.segments) text += fmt::format("{} mapped segments; ", now.segments - before.segments);
    for (const std::string& name : new_ones(before.files, files)) text += fmt::format("file {}; ", name);
    for (const std::string& name : new_ones(before.sockets, sockets)) text += fmt::format("socket {}; ", name);
    if (now.children && !before.children) text += "processes; ";
    if (text.empty()) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return text;
}

}  // namespace tutti::comm
