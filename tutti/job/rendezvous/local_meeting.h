// How ranks started by one process of this host, such as mpirun or srun, find the store of rank 0 without a port given
// by the user, since these launchers give a rank its number but no address for a store.
//
// Rank 0 lets the system pick the port and listens at a door: a socket without a file, named by the user and by the
// process that has started the ranks, its number and the moment of its start, which no other job on this host shares.
// Each rank of the same user knocks once and is given the port and a fresh job key. A rank that knocks again belongs to
// the next store: it waits for the next door. The kernel closes the door with rank 0; nothing is left behind.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// The nearest ancestor of this process that is no part of the rank: a shell or script between them was started with the
// same values of `rank_variable` and of the variables that tell jobs apart. pid 0 when /proc does not tell.
struct LauncherProcess {
  int pid = 0;
  std::string start;  // in clock ticks since the machine was booted
  std::string name;   // "mpirun"
};
LauncherProcess find_launcher_process(const char* rank_variable);

struct LocalMeetingPlace {
  std::string name;    // of the door; unique on this host
  std::string people;  // "the ranks that mpirun (pid 4711) has started", for messages
};
LocalMeetingPlace local_meeting_place(const char* rank_variable);

struct StoreTicket {
  int port = 0;
  std::string job_key;
};

// Rank 0's side: gives each of the other ranks its ticket, until destruction.
class LocalDoor {
 public:
  // EnvironmentError when somebody else listens under this name.
  LocalDoor(const LocalMeetingPlace& place, StoreTicket ticket, int world_size);
  ~LocalDoor();
  LocalDoor(const LocalDoor&) = delete;
  LocalDoor& operator=(const LocalDoor&) = delete;

 private:
  void run(int world_size);
  const StoreTicket ticket_;
  UniqueFd listener_, stop_;
  std::thread thread_;
};

// The other ranks' side. StoreTimeout when rank 0 opens no door until the deadline.
StoreTicket knock(const LocalMeetingPlace& place, int rank, int world_size, std::chrono::milliseconds timeout);

}  // namespace tutti::comm
