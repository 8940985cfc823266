#include "tutti/symm/peer_record.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>

#include "tutti/core/error.h"
#include "tutti/job/host/fd_channel.h"

namespace tutti::comm::symm {
namespace {

constexpr std::string_view kMagic = "tutti-symm";

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// Splits "word word ..." and checks each.
class Words {
 public:
  Words(std::string_view text, int rank) : rest_(text), rank_(rank) {}
  std::string_view next() {
    const size_t end = rest_.find(' ');
    TUTTI_CHECK_ENV(end != std::string_view::npos, "symmetric memory: the record of rank {} is cut short", rank_);
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return word;
  }
  int64_t number() {
    const std::string_view word = next();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    TUTTI_CHECK_ENV(error == std::errc() && end == word.data() + word.size(),
                    "symmetric memory: the record of rank {} says '{}' where a number belongs", rank_,
                    word.substr(0, 40));
    return value;
  }
  std::string bytes() {
    const std::string_view word = next();
    TUTTI_CHECK_ENV(word.size() % 2 == 1 && word[0] == '=', "symmetric memory: the record of rank {} is damaged",
                    rank_);
    std::string out;
    for (size_t i = 1; i + 1 < word.size(); i += 2) {
      unsigned value = 0;
      const auto [end, error] = std::from_chars(word.data() + i, word.data() + i + 2, value, 16);
      TUTTI_CHECK_ENV(error == std::errc() && end == word.data() + i + 2,
                      "symmetric memory: the record of rank {} is damaged", rank_);
      out += static_cast<char>(value);
    }
    return out;
  }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  int rank_;
};

std::string link_text(const char* path) {
  std::array<char, 128> buffer{};
  const ssize_t length = readlink(path, buffer.data(), buffer.size());
  return length > 0 ? std::string(buffer.data(), static_cast<size_t>(length)) : "?";
}

using Text = std::function<std::string(const PeerRecord&)>;

// "" when text(record) is the same on all ranks; else "rank 0: a; rank 2: b".
std::string differences(std::span<const PeerRecord> records, const Text& text) {
  std::map<std::string, std::string> ranks_by_text;
  for (const PeerRecord& record : records) {
    std::string& ranks = ranks_by_text[text(record)];
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", record.rank);
  }
  if (ranks_by_text.size() == 1) return "";
  std::string result;
  for (const auto& [value, ranks] : ranks_by_text) {
    result += fmt::format("{}{} {}: {}", result.empty() ? "" : "; ",
                          ranks.find(',') == std::string::npos ? "rank" : "ranks", ranks, value);
  }
  return result;
}

}  // namespace

std::string to_text(const PeerRecord& r) {
  const auto bytes = [](std::string_view s) { return "=" + to_hex(s); };
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} ", kMagic, r.version, r.rank, r.size,
                     int{r.symmetric}, bytes(r.host), r.uid, r.pid, bytes(r.process), bytes(r.purpose),
                     bytes(r.problem), bytes(r.backend), r.data_bytes, r.pad_bytes, r.offset, r.ordinal, r.generation,
                     int{r.connected}, int{r.own_pad}, bytes(r.ticket));
}

PeerRecord parse_record(std::string_view text, int rank) {
  Words words(text, rank);
  TUTTI_CHECK_ENV(words.next() == kMagic, "symmetric memory: rank {} has stored something else than its record", rank);
  PeerRecord r;
  r.version = static_cast<int>(words.number());
  TUTTI_CHECK_ENV(
      r.version == kRecordVersion,
      "symmetric memory: rank {} speaks version {} of the protocol, this rank version {}; all ranks must run the "
      "same release",
      rank, r.version, kRecordVersion);
  r.rank = static_cast<int>(words.number());
  r.size = static_cast<int>(words.number());
  r.symmetric = words.number() != 0;
  r.host = words.bytes();
  r.uid = words.number();
  r.pid = words.number();
  r.process = words.bytes();
  r.purpose = words.bytes();
  r.problem = words.bytes();
  r.backend = words.bytes();
  r.data_bytes = words.number();
  r.pad_bytes = words.number();
  r.offset = words.number();
  r.ordinal = words.number();
  r.generation = words.number();
  r.connected = words.number() != 0;
  r.own_pad = words.number() != 0;
  r.ticket = words.bytes();
  TUTTI_CHECK_ENV(words.is_at_end() && r.rank == rank, "symmetric memory: the record of rank {} is damaged", rank);
  return r;
}

std::string find_disagreement(std::string_view title, std::span<const PeerRecord> records, bool reaches_hosts) {
  for (const PeerRecord& record : records) {
    if (!record.problem.empty()) return fmt::format("{}: rank {}: {}", title, record.rank, record.problem);
  }
  struct Rule {
    const char* what;
    Text text;
  };
  const std::string advice = "; all ranks must make the same allocations and rendezvous in the same order";
  const Rule rules[] = {
      {"the ranks meet for different things", [](const PeerRecord& r) { return r.purpose; }},
      {"the group sizes differ", [](const PeerRecord& r) { return std::to_string(r.size); }},
      {"the backends differ", [](const PeerRecord& r) { return r.backend; }},
      {"the allocations have different sizes",
       [](const PeerRecord& r) { return fmt::format("{} bytes", r.data_bytes); }},
      {"the signal pads differ", [](const PeerRecord& r) { return fmt::format("{} bytes", r.pad_bytes); }},
      {"the tensors begin at different places of their allocations",
       [](const PeerRecord& r) { return fmt::format("byte {}", r.offset); }},
      {"the allocations were not made in the same order",
       [](const PeerRecord& r) { return fmt::format("allocation {} for the group", r.ordinal); }},
      {"some ranks have met for this allocation before",
       [](const PeerRecord& r) { return std::string(r.connected ? "met" : "new"); }},
  };
  for (const Rule& rule : rules) {
    const std::string found = differences(records, rule.text);
    if (!found.empty()) return fmt::format("{}: {}: {}{}", title, rule.what, found, advice);
  }
  const std::string users = differences(records, [](const PeerRecord& r) { return fmt::format("user {}", r.uid); });
  if (!users.empty()) return fmt::format("{}: the ranks belong to different users: {}", title, users);
  const std::string hosts = differences(records, [](const PeerRecord& r) { return r.host; });
  if (!hosts.empty() && !reaches_hosts) {
    return fmt::format(
        "{}: the ranks are on different hosts or in different namespaces, where backend {} reaches one host: {}", title,
        records[0].backend, hosts);
  }
  return "";
}

const std::string& host_identity() {
  static const std::string identity = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    file >> boot;
    return fmt::format("boot {} {} {}", boot, link_text("/proc/self/ns/pid"), link_text("/proc/self/ns/net"));
  }();
  return identity;
}

// A forked child is another process with a copy of its parent's memory.
const std::string& process_token() {
  thread_local pid_t owner = 0;
  thread_local std::string token;
  static const std::string random = random_token();
  if (owner != getpid()) {
    owner = getpid();
    token = fmt::format("{}.{}", random, owner);
  }
  return token;
}

}  // namespace tutti::comm::symm
