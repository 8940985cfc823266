#include "tutti/comm/exchange_check.h"

#include "tutti/core/error.h"

namespace tutti::comm {

void check_exchange(const CallRecord& call, const Exchange& exchange, int rank, int size) {
  const auto what = [&] { return fmt::format("{} #{} on rank {}", name_of(call.kind), call.sequence, rank); };
  const auto fits = [&](size_t count) { return count == 1 || count == static_cast<size_t>(size); };
  TUTTI_CHECK(fits(exchange.offers.size()), "{}: {} offers; expected 1 or one for each of {} ranks", what(),
              exchange.offers.size(), size);
  TUTTI_CHECK(fits(exchange.takes.size()), "{}: {} sizes to take; expected 1 or one for each of {} ranks", what(),
              exchange.takes.size(), size);
  for (size_t p = 0; p < exchange.offers.size(); ++p) {
    const ConstBlock& block = exchange.offers[p];
    TUTTI_CHECK(block.bytes >= 0, "{}: the offer to rank {} has {} bytes", what(), p, block.bytes);
    TUTTI_CHECK(block.bytes == 0 || block.data != nullptr, "{}: the offer to rank {} has {} bytes but no memory",
                what(), p, block.bytes);
  }
  for (size_t p = 0; p < exchange.takes.size(); ++p) {
    TUTTI_CHECK(exchange.takes[p] >= 0, "{}: {} bytes to take from rank {}", what(), exchange.takes[p], p);
  }
  // All ranks hear of sizes of uneven calls that do not fit, by comparing tables; sizes that follow from the record go
  // wrong only here.
  const bool spares_itself = exchange.offers_one_block() && exchange.take_from(rank) == 0;  // the root of a broadcast
  TUTTI_CHECK(!call.same_sizes || spares_itself || exchange.offer_to(rank).bytes == exchange.take_from(rank),
              "{}: it offers itself {} bytes and takes {}; expected the same", what(), exchange.offer_to(rank).bytes,
              exchange.take_from(rank));
}

void check_message(const Message& message, int rank, int size) {
  const char* what = message.is_send ? "send" : "receive";
  TUTTI_CHECK(message.peer != rank, "{} with tag {}: rank {} names itself as the peer; copy the tensor instead", what,
              message.tag, rank);
  TUTTI_CHECK(message.peer < size && message.peer >= (message.is_send ? 0 : -1),
              "{} with tag {}: peer {} is no rank of a group of {}", what, message.tag, message.peer, size);
  TUTTI_CHECK(message.bytes >= 0 && (message.bytes == 0 || message.data != nullptr),
              "{} with tag {}: {} bytes without memory", what, message.tag, message.bytes);
}

std::string why_refused(const Message& receive, int from, int rank, DType sent_dtype, int64_t sent_bytes,
                        int64_t call) {
  const char* field = sent_dtype != receive.dtype ? "dtypes" : sent_bytes != receive.bytes ? "lengths" : nullptr;
  if (field == nullptr) return "";
  const std::string number = call == 0 ? "" : fmt::format(" (message #{} of rank {})", call, from);
  return fmt::format(
      "rank {} refuses the message with tag {} from rank {}{}: the {} differ: rank {} sends {} elements of {}, rank {} "
      "receives {} of {}",
      rank, receive.tag, from, number, field, from, sent_bytes / itemsize(sent_dtype), name_of(sent_dtype), rank,
      receive.bytes / itemsize(receive.dtype), name_of(receive.dtype));
}

int64_t number_of_call(const Message& message) { return message.call == nullptr ? 0 : message.call->sequence; }

std::string withdrawn_text(const Message& receive, int from, int64_t bytes) {
  return fmt::format("receive of {} bytes from rank {} with tag {}: the sender cancelled the message after {} bytes",
                     receive.bytes, from, receive.tag, bytes);
}

}  // namespace tutti::comm
