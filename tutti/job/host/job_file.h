// JobFile: memory of a job that outlives its ranks (docs/surviving.md).
//
// The launcher creates it and holds it open; every rank that it starts inherits the descriptor. It is an anonymous
// file, so nothing is left when the last process of the job is gone, however it went. It begins with pages in which the
// launcher says who lives:
//
//   team      the ranks that work together, numbered from 1. A death begins the next team, and so does a replacement
//   that is ready. The launcher is
//             the only one who writes teams, so all ranks agree about them without a word.
//   deaths    which rank was lost, when, and by which signal.
//
// The rest is the state that the ranks share, as large as they say. A seat is the number of a rank on this host; a
// replacement takes the seat of the rank that it replaces.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

struct TeamMember {
  int32_t seat = 0;
  pid_t pid = 0;
  bool operator==(const TeamMember&) const = default;
};

struct RankDeath {
  int32_t seat = 0;
  pid_t pid = 0;
  int32_t signal = 0;
  int64_t at_ns = 0;  // monotonic_ns() when the launcher noticed it
};

// Nanoseconds of the host's monotonic clock, which is the same in all processes.
int64_t monotonic_ns();

class JobFile {
 public:
  static constexpr int kMaxSeats = 64;

  // For a job of `seats` ranks. UsageError for more than kMaxSeats, EnvironmentError when there is no memory.
  static std::shared_ptr<JobFile> create(int seats);
  // Maps the file that `fd` is open for, and takes the descriptor. EnvironmentError when it is none of this version.
  static std::shared_ptr<JobFile> open(UniqueFd fd);
  // The file that this process has inherited from its launcher; null: it has none. Every call returns the same one.
  static std::shared_ptr<JobFile> inherited();
  ~JobFile();
  JobFile(const JobFile&) = delete;
  JobFile& operator=(const JobFile&) = delete;

  int fd() const { return fd_.get(); }
  int seats() const;
  // The environment variable that tells a rank the descriptor, as "NAME=value".
  std::string variable() const;

  // ---- the launcher's part
  void publish_team(const std::vector<TeamMember>& members);
  void note_death(const TeamMember& member, int signal);
  void expect_replacement(int seat);  // from now on is_ready() is about the process that is started next
  void end_job();                     // nobody waits for a team any more

  // ---- the ranks' part
  // The number of the newest team; 0 before the first.
  uint64_t team() const;
  // The members of a team in the order of their ranks. Empty when it is no longer known, as after many later teams.
  std::vector<TeamMember> members(uint64_t team) const;
  std::vector<RankDeath> deaths() const;  // all so far, the first 256
  bool has_ended() const;
  // A replacement is ready to join; the launcher makes a team with it.
  void set_ready(int seat, pid_t pid);
  bool is_ready(int seat) const;

  // Every rank has done all that the job asks of it: one that is lost from now on is missed by nobody.
  void note_done();
  bool is_done() const;

  // A text that the ranks leave for whoever joins them later, at most kMaxText bytes; "" at first. One rank writes it,
  // once or over an equal one.
  static constexpr size_t kMaxText = 1 << 20;
  void leave_text(const std::string& text);
  std::string text() const;

  // The shared state: at least `nbytes`, zeros at first, all pages allocated. All ranks give the same number.
  // EnvironmentError when there is too little memory. The address stays for the life of this object.
  std::byte* map_state(int64_t nbytes);

 private:
  struct Header;
  explicit JobFile(UniqueFd fd);
  void map_header();
  UniqueFd fd_;
  Header* header_ = nullptr;
  std::byte* state_ = nullptr;
  int64_t state_bytes_ = 0;
};

}  // namespace tutti::comm
