// The job key: a secret shared by the ranks of a job, and how both ends of a connection prove that they know it.
//
// A job on several hosts is started with the same key on all of them, in TUTTI_JOB_KEY or in a file named by
// TUTTI_JOB_KEY_FILE. The key itself is never sent: each side sends a new random number, and each proves with an
// HMAC-SHA256 over both numbers that it knows the key. Each proof includes the name of its side, so that it cannot be
// reflected as the proof of the other. The data that follows on the connection is neither encrypted nor signed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::comm {

constexpr size_t kMinJobKeyBytes = 16;
constexpr size_t kMaxJobKeyBytes = 4096;

// The key from TUTTI_JOB_KEY or from the file that TUTTI_JOB_KEY_FILE names (without trailing white space); "" when
// neither is set. UsageError when both are set, when the key is shorter than 16 bytes or longer than 4096, or when
// every user of the host may read the file. EnvironmentError when the file cannot be read.
std::string read_job_key();

// UsageError unless `key` is "" (none) or 16 to 4096 bytes.
void check_job_key(std::string_view key);

}  // namespace tutti::comm
