// Validation of Exchanges and Messages, on which every transport may rely.
#pragma once

#include "tutti/comm/transport.h"

namespace tutti::comm {

// UsageError, naming the call and the fault, when there are neither 1 nor W offers or takes, for negative sizes, bytes
// without memory, or (where all ranks' sizes agree) a rank that takes from itself neither what it offers to itself nor
// nothing.
void check_exchange(const CallRecord& call, const Exchange& exchange, int rank, int size);
// UsageError when the peer is not another rank of the group (-1 receives from any), or when bytes have no memory.
void check_message(const Message& message, int rank, int size);

// "" when what rank `from` has sent in its call number `call` (0: unknown) matches the receive on `rank`, else the text
// of the error on both ranks.
std::string why_refused(const Message& receive, int from, int rank, DType sent_dtype, int64_t sent_bytes, int64_t call);
// The number that travels with a message.
int64_t number_of_call(const Message& message);
// The error text for a message that its sender withdrew after `bytes` bytes.
std::string withdrawn_text(const Message& receive, int from, int64_t bytes);

}  // namespace tutti::comm
