#include <dirent.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "tutti/job/store/socket.h"

namespace tutti::comm {
namespace {

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

// Adds "socket:[inode]" of the sockets that listen on the port, as the links in /proc/<pid>/fd name them.
void add_listeners(const char* table, int port, std::set<std::string>& sockets) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retries, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
    const size_t colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;
    int value = 0;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), value, 16);
    if (value == port) sockets.insert(fmt::format("socket:[{}]", inode));
  }
}

bool holds_any(const std::string& folder, const std::set<std::string>& sockets) {
  const Directory directory(opendir(folder.c_str()), closedir);
  while (const dirent* entry = directory ? readdir(directory.get()) : nullptr) {
    char target[64];
    const ssize_t size = readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target);
    if (size > 0 && sockets.contains(std::string(target, static_cast<size_t>(size)))) return true;
  }
  return false;
}

}  // namespace

std::string find_port_owner(int port) {
  std::set<std::string> sockets;
  add_listeners("/proc/net/tcp", port, sockets);
  add_listeners("/proc/net/tcp6", port, sockets);
  if (sockets.empty()) return "";
  const Directory directory(opendir("/proc"), closedir);
  while (const dirent* entry = directory ? readdir(directory.get()) : nullptr) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_any("/proc/" + pid + "/fd", sockets)) continue;
    std::string name;
    std::ifstream file("/proc/" + pid + "/comm");
    std::getline(file, name);
    return fmt::format("pid {} ({})", pid, name);
  }
  return "";
}

}  // namespace tutti::comm
