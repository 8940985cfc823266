// PeerRecord: the information that a rank sends to the others at a rendezvous, and the check that all records are
// consistent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::comm::symm {

inline constexpr int kRecordVersion = 2;

struct PeerRecord {
  int version = kRecordVersion;
  int rank = 0;
  int size = 0;
  bool symmetric = false;  // what follows `symmetric` is meaningful only then
  std::string host;        // boot and namespaces: where descriptors can be passed and processes watched
  int64_t uid = 0;
  int64_t pid = 0;
  std::string process;               // a random number of the process: equal for threads of one
  std::string purpose = "a tensor";  // what the ranks meet for
  std::string problem;               // why this rank cannot take part; "" when it can
  std::string backend;
  int64_t data_bytes = 0;
  int64_t pad_bytes = 0;
  int64_t offset = 0;
  int64_t ordinal = 0;
  int64_t generation = 0;
  bool connected = false;  // this allocation is mapped for the group already: another offset of it
  bool own_pad = false;    // the pad inside the block serves another group
  std::string ticket;      // of the backend
};

std::string to_text(const PeerRecord& record);
// EnvironmentError when the text is no record, is cut, or is of another version (which it names).
PeerRecord parse_record(std::string_view text, int rank);

// "" or the message that every rank throws; the same on all of them.
std::string find_disagreement(std::string_view title, std::span<const PeerRecord> records, bool reaches_hosts);

// The host identity and the random token of this process.
const std::string& host_identity();
const std::string& process_token();

}  // namespace tutti::comm::symm
