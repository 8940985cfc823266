// Whether an Exchange is whole: what every transport may rely on.
#pragma once

#include "tutti/comm/transport.h"

namespace tutti::comm {

// UsageError names the call and what is wrong: neither 1 nor W offers or takes, negative sizes, bytes without memory, or
// (where all ranks' sizes agree) a rank that takes from itself other than what it offers itself or nothing.
void check_exchange(const CallRecord& call, const Exchange& exchange, int rank, int size);
// UsageError when the peer is no other rank of the group (-1 receives from any), or bytes have no memory.
void check_message(const Message& message, int rank, int size);

// "" when what rank `from` has sent fits the receive that takes it on `rank`, else the text that both end with.
std::string why_refused(const Message& receive, int from, int rank, DType sent_dtype, int64_t sent_bytes);
// The text about a message that its sender gave up after `bytes` of it.
std::string withdrawn_text(const Message& receive, int from, int64_t bytes);

}  // namespace tutti::comm
