#include "tutti/comm/shm/shm_transport.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "tutti/comm/call_mismatch.h"
#include "tutti/core/error.h"
#include "tutti/runtime/futex.h"

namespace tutti::comm {
namespace {

// Below this, copying through the slot beats waiting until the peers have read in place.
constexpr int64_t kDirectBytes = 8 << 10;
constexpr int64_t kAligned = 64;
// The copies of the kernel take longer than anything that a rank spins for otherwise: it spins so many times as long.
constexpr uint32_t kPatience = 16;
constexpr int kTightLooks = 8;
// A peer that makes the same call at the same time is a tenth of a microsecond away, hardly more than one pause of the
// core: the first looks go without.
constexpr uint32_t kAttemptsAtOnce = 4;

int64_t largest_offer(const Exchange& e) {
  int64_t bytes = 0;
  for (const ConstBlock& block : e.offers) bytes = std::max(bytes, block.bytes);
  return bytes;
}

uint16_t own_core() { return static_cast<uint16_t>(sched_getcpu()); }

// Has the core own the cache line soon, which otherwise takes the way to the peer that read it last and back once it is
// written to.
void own_soon(const Line& line) { asm volatile("prefetchw %0" : : "m"(line)); }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<Segment> segment, int rank, ShmOptions options)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(segment_->world_size()),
      options_(std::move(options)),
      traits_{.name = options_.one_address_space ? "threads" : "shm", .devices = {DeviceKind::cpu}},
      watch_(segment_, rank, options_.one_address_space, options_.local_ranks, options_.shown_ranks,
             options_.world_ranks),
      mail_(segment_, rank, options_.shown_ranks),
      peer_memory_(segment_, rank, options_.may_pull && !options_.one_address_space),
      arrivals_(static_cast<size_t>(size_)),
      pulled_from_(static_cast<size_t>(size_)),
      places_(static_cast<size_t>(size_)) {}

ShmTransport::~ShmTransport() = default;

// ---- the round ------------------------------------------------------------------------------------------------------

void ShmTransport::start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) {
  throw_if_failed();
  TUTTI_ASSERT(phase_ == Phase::idle, "a round starts while another is under way");
  call_ = &call;
  exchange_ = &exchange;
  receiver_ = &receiver;
  first_step_ = step == 0;
  if (first_step_) fingerprint_ = call.fingerprint();
  else ++fingerprint_;
  part_ = 0;
  parts_ = 1;
  phase_ = Phase::meeting;
  publish();
}

int64_t ShmTransport::part_bytes(bool one_block) const {
  const int64_t slot = segment_->slot_bytes();
  return one_block ? slot : slot / size_ / kAligned * kAligned;
}

// Puts part `part_` of the offer where peers can read it, and says so.
void ShmTransport::publish() {
  ++meeting_;
  next_to_look_at_ = 0;
  Line& line = segment_->area(rank_).lines[meeting_ & 1];
  line.fingerprint = fingerprint_;
  line.one_block = exchange_->offers_one_block();
  if (part_ == 0) publish_first();
  else line.mode = mode_;
  if (line.mode == OfferMode::staged) {
    std::byte* slot = segment_->slot(rank_, meeting_);
    const int64_t part = part_bytes(exchange_->offers_one_block()), offset = part_ * part;
    for (size_t p = 0; p < exchange_->offers.size(); ++p) {
      const ConstBlock& block = exchange_->offers[p];
      const bool to_me = !exchange_->offers_one_block() && static_cast<int>(p) == rank_;
      if (block.bytes <= offset || to_me) continue;
      std::memcpy(slot + static_cast<int64_t>(p) * part, block.data + offset,
                  static_cast<size_t>(std::min(part, block.bytes - offset)));
    }
  }
  line.core.store(own_core(), std::memory_order_relaxed);
  line.meeting.store(meeting_, std::memory_order_release);
  if (size_ > 1) watch_.wake_peers();
}

void ShmTransport::publish_first() {
  RankArea& area = segment_->area(rank_);
  Line& line = area.lines[meeting_ & 1];
  const Exchange& e = *exchange_;
  if (first_step_) {
    area.records[meeting_ & 1].store(*call_);
    area.record_meeting.store(meeting_, std::memory_order_release);
  }
  if (!call_->same_sizes) {
    for (int p = 0; p < size_; ++p) {
      area.offers[meeting_ & 1][p] = e.offer_to(p).bytes;
      area.takes[meeting_ & 1][p] = e.take_from(p);
    }
  }
  const int64_t largest = largest_offer(e);
  line.stride = line.one_block ? 0 : largest;
  if (largest * static_cast<int64_t>(e.offers.size()) <= kInlineBytes) {
    line.mode = OfferMode::in_line;
    line.parts = 1;
    for (size_t p = 0; p < e.offers.size(); ++p) {
      if (e.offers[p].bytes > 0)
        std::memcpy(line.data + static_cast<int64_t>(p) * line.stride, e.offers[p].data,
                    static_cast<size_t>(e.offers[p].bytes));
    }
  } else {
    line.mode = offers_directly(line)      ? OfferMode::direct
                : lets_pull(line, largest) ? OfferMode::pulled
                                           : OfferMode::staged;
    line.parts = static_cast<uint32_t>(ceil_div(largest, part_bytes(line.one_block)));
  }
  mode_ = line.mode;
}

bool ShmTransport::offers_directly(Line& line) {
  if (size_ == 1) return true;
  if (exchange_->overwrites_offers) return false;
  if (regions_.empty() && !options_.one_address_space) return false;
  const Exchange& e = *exchange_;
  int64_t total = 0;
  for (const ConstBlock& block : e.offers) total += block.bytes;
  if (total < kDirectBytes) return false;
  DirectBlock* blocks = segment_->area(rank_).blocks[meeting_ & 1];
  for (size_t p = 0; p < e.offers.size(); ++p) {
    if (e.offers[p].bytes > 0 && !find_direct(e.offers[p], blocks[p])) return false;
  }
  if (line.one_block) std::memcpy(line.data, blocks, sizeof(DirectBlock));
  return true;
}

bool ShmTransport::all_arrived() {
  for (; next_to_look_at_ < size_; ++next_to_look_at_) {
    const Line& line = segment_->area(next_to_look_at_).lines[meeting_ & 1];
    if (line.meeting.load(std::memory_order_acquire) < meeting_) return false;
  }
  return true;
}

bool ShmTransport::advance() {
  while (phase_ == Phase::meeting) {
    if (!all_arrived()) {
      leave_if_failed();
      return false;
    }
    own_soon(segment_->area(rank_).lines[(meeting_ + 1) & 1]);
    if (meeting_ <= 2) [[unlikely]]
      settle_pulling();
    if (part_ == 0) compare();
    if (options_.one_address_space && any_direct_) deliver_from_threads();
    else deliver();
    say_consumed();
    if (++part_ < parts_) {
      publish();
    } else {
      phase_ = mode_ == OfferMode::direct || mode_ == OfferMode::pulled ? Phase::draining : Phase::idle;
      next_to_look_at_ = 0;
    }
  }
  // Peers read this rank's memory: it is the caller's again when all have.
  for (; phase_ == Phase::draining && next_to_look_at_ < size_; ++next_to_look_at_) {
    if (segment_->area(next_to_look_at_).consumed.load(std::memory_order_acquire) < meeting_) {
      leave_if_failed();
      return false;
    }
  }
  phase_ = Phase::idle;
  return true;
}

void ShmTransport::say_consumed() {
  segment_->area(rank_).consumed.store(meeting_, std::memory_order_release);
  if (any_direct_) watch_.wake_peers();
}

// Everybody's first line of the round is there: do the calls fit together, and how many parts are there?
void ShmTransport::compare() {
  all_direct_ = true;
  any_direct_ = false;
  any_pulled_ = false;
  uint32_t parts = 1;
  for (int p = 0; p < size_; ++p) {
    const Line& line = segment_->area(p).lines[meeting_ & 1];
    if (line.fingerprint != fingerprint_) [[unlikely]] {
      std::vector<CallRecord> records;
      for (int q = 0; q < size_; ++q) records.push_back(segment_->area(q).records[meeting_ & 1].load());
      phase_ = Phase::idle;
      throw_mismatch(options_.group, records);
    }
    all_direct_ &= line.mode != OfferMode::staged;
    any_direct_ |= (line.mode == OfferMode::direct || line.mode == OfferMode::pulled) && p != rank_;
    any_pulled_ |= line.mode == OfferMode::pulled;
    parts = std::max(parts, line.parts);
  }
  parts_ = all_direct_ ? 1 : parts;
  if (!call_->same_sizes) check_takes();
}

void ShmTransport::check_takes() const {
  for (int to = 0; to < size_; ++to) {
    for (int from = 0; from < size_; ++from) {
      const int64_t offered = segment_->area(from).offers[meeting_ & 1][to];
      const int64_t taken = segment_->area(to).takes[meeting_ & 1][from];
      if (offered == taken) continue;
      const_cast<ShmTransport*>(this)->phase_ = Phase::idle;
      throw UsageError(fmt::format(
          "collective #{} of group '{}', {}: the sizes differ: rank {} sends {} bytes to rank {}, which expects {}",
          call_->sequence, options_.group, name_of(call_->kind), from, offered, to, taken));
    }
  }
}

void ShmTransport::deliver() {
  bool pulls = false;
  reads_in_place_ = false;
  for (int p = 0; p < size_; ++p) {
    const Line& line = segment_->area(p).lines[meeting_ & 1];
    Arrival& arrival = arrivals_[static_cast<size_t>(p)];
    const int64_t total = exchange_->take_from(p);
    const bool whole = all_direct_ || line.mode == OfferMode::in_line;
    const int64_t part = whole ? total : part_bytes(line.one_block);
    arrival.offset = whole ? 0 : part_ * part;
    arrival.bytes = std::clamp<int64_t>(total - arrival.offset, 0, part);
    if (whole && part_ > 0) arrival.bytes = 0;
    uint64_t& pulled_from = pulled_from_[static_cast<size_t>(p)];
    pulled_from = 0;
    if (arrival.bytes == 0) {
      arrival.data = nullptr;
    } else if (p == rank_) {
      arrival.data = exchange_->offer_to(rank_).data + arrival.offset;
    } else if (line.mode == OfferMode::in_line) {
      arrival.data = line.data + rank_ * line.stride;
    } else if (line.mode == OfferMode::staged) {
      arrival.data = segment_->slot(p, meeting_) + (line.one_block ? 0 : rank_ * part);
    } else {
      // Where an offer lies was said at the first meeting, and the owner rewrites that table only at another round.
      const uint64_t first = meeting_ - static_cast<uint64_t>(part_);
      const DirectBlock block = line.one_block && part_ == 0
                                    ? *reinterpret_cast<const DirectBlock*>(line.data)
                                    : segment_->area(p).blocks[first & 1][line.one_block ? 0 : rank_];
      if (line.mode == OfferMode::pulled) {
        pulled_from = block.offset;
        pulls = true;
      } else {
        arrival.data = direct_address(p, block) + arrival.offset;
        reads_in_place_ = true;
      }
    }
  }
  if (pulls) pull_and_deliver();
  else receiver_->receive(arrivals_);
}

// A thread that gives up frees the memory that it offered, and nothing but this keeps a peer from reading there still.
void ShmTransport::deliver_from_threads() {
  struct Reading {
    std::atomic<uint32_t>& flag;
    explicit Reading(std::atomic<uint32_t>& f) : flag(f) { flag.store(1); }
    ~Reading() { flag.store(0); }
  } const reading(segment_->area(rank_).reading);
  // Whoever has given up has failed the group before it looked at the flag.
  if (segment_->header().failure.load() == 0) return deliver();
  throw_if_failed();
}

// ---- memory that peers read in place --------------------------------------------------------------------------------

int64_t ShmTransport::add_region(std::vector<std::byte*> bases, int64_t bytes) {
  TUTTI_CHECK(static_cast<int>(bases.size()) == size_, "a region needs {} bases, one per rank; got {}", size_,
              bases.size());
  regions_.push_back({std::move(bases), bytes});
  return static_cast<int64_t>(regions_.size()) - 1;
}

void ShmTransport::remove_region(int64_t region) {
  TUTTI_CHECK(region >= 0 && region < static_cast<int64_t>(regions_.size()), "no region {}; there are {}", region,
              regions_.size());
  regions_[static_cast<size_t>(region)] = {};
}

bool ShmTransport::find_direct(const ConstBlock& block, DirectBlock& out) const {
  if (options_.one_address_space) {
    out = {.region = 0, .offset = reinterpret_cast<uint64_t>(block.data)};
    return true;
  }
  for (size_t r = 0; r < regions_.size(); ++r) {
    if (regions_[r].bases.empty()) continue;
    const int64_t offset = block.data - regions_[r].bases[static_cast<size_t>(rank_)];
    if (offset < 0 || offset + block.bytes > regions_[r].bytes) continue;
    out = {.region = r, .offset = static_cast<uint64_t>(offset)};
    return true;
  }
  return false;
}

const std::byte* ShmTransport::direct_address(int from, const DirectBlock& block) const {
  if (options_.one_address_space) return reinterpret_cast<const std::byte*>(block.offset);
  TUTTI_ASSERT(block.region < regions_.size(), "rank {} offers memory of region {}, unknown here", from, block.region);
  return regions_[block.region].bases[static_cast<size_t>(from)] + block.offset;
}

// ---- messages, waiting, failing -------------------------------------------------------------------------------------

void ShmTransport::advance_messages() {
  throw_if_failed();
  if (mail_.advance()) watch_.wake_peers();
}

void ShmTransport::take_refusals(std::vector<Refusal>& into) {
  // A group that has failed advances no messages any more, but may have been told before.
  if (segment_->header().failure.load(std::memory_order_acquire) != 0) [[unlikely]]
    mail_.read_refusals();
  mail_.take_refusals(into);
}

void ShmTransport::look_after(int peer, const CallRecord& call) {
  const std::string why = watch_.why_gone(peer);
  if (why.empty() || watch_.has_left(peer)) return;
  fail(fmt::format("{} while rank {} was sending to it in {} #{} of group '{}'", why, watch_.shown(rank_),
                   name_of(call.kind), call.sequence, options_.group));
}

bool ShmTransport::has_news() {
  if (segment_->header().failure.load(std::memory_order_acquire) != 0) return true;
  if (phase_ == Phase::meeting && all_arrived()) return true;
  if (phase_ == Phase::draining &&
      segment_->area(next_to_look_at_).consumed.load(std::memory_order_acquire) >= meeting_)
    return true;
  return mail_.has_news();
}

bool ShmTransport::pause(uint32_t attempt, std::chrono::microseconds limit) {
  const uint32_t patience = any_pulled_ ? kPatience : 1;
  if (attempt == 0) watch_.begin_wait();
  if (phase_ == Phase::meeting && next_to_look_at_ < size_ && watch_.spins(attempt, patience)) {
    // The shortest way to see a line appear.
    const std::atomic<uint64_t>& line = segment_->area(next_to_look_at_).lines[meeting_ & 1].meeting;
    const bool at_once = attempt < kAttemptsAtOnce;
    for (int i = 0; i < (at_once ? 2 * kTightLooks : kTightLooks) && line.load(std::memory_order_relaxed) < meeting_;
         ++i) {
      if (!at_once) __builtin_ia32_pause();
    }
    if (attempt % 64 != 0) return false;
  }
  const bool slept =
      watch_.pause(attempt, patience, limit, [this] { return has_news(); }, [this] { return waits_for_own_core(); });
  if (slept && !has_news()) look_after_peers();
  return !watch_.spins(attempt, patience);
}

// Fails the group when somebody is waited for in vain. A peer may have done its part before it went: its absence is
// noted first, and then it is looked again whether its part is missing.
void ShmTransport::look_after_peers() {
  const auto say = [this](const std::string& why, const CallRecord* call) {
    const std::string what = call == nullptr ? "a message" : fmt::format("{} #{}", name_of(call->kind), call->sequence);
    fail(fmt::format("{} while rank {} waited for it in {} of group '{}'", why, watch_.shown(rank_), what,
                     options_.group));
  };
  for (const int p : late_ranks()) {
    if (p == rank_) continue;
    const std::string why = watch_.why_gone(p);
    if (!why.empty() && is_late(p)) return say(why, call_);
  }
  for (const Message* message : mail_.waiting()) {
    const std::string why = why_no_message(*message);
    if (!why.empty()) return say(why, message->call);
  }
}

std::string ShmTransport::why_no_message(const Message& message) {
  if (message.peer >= 0) {
    const std::string why = watch_.why_gone(message.peer);
    return mail_.has_news_of(message.peer) ? "" : why;
  }
  // A message from anybody may still come when some have left in good order; a crash may have lost it.
  std::string left, died;
  bool all_left = true;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    const std::string why = watch_.why_gone(p);
    if (mail_.has_news_of(p)) return "";
    if (why.empty()) all_left = false;
    else (watch_.has_left(p) ? left : died) = why;
  }
  return died.empty() && all_left ? left : died;
}

bool ShmTransport::is_late(int rank) const {
  const RankArea& area = segment_->area(rank);
  switch (phase_) {
    case Phase::idle:
      return false;
    case Phase::meeting:
      return area.lines[meeting_ & 1].meeting.load(std::memory_order_acquire) < meeting_;
    case Phase::draining:
      return area.consumed.load(std::memory_order_acquire) < meeting_;
  }
  return false;
}

std::vector<int> ShmTransport::late_ranks() const {
  std::vector<int> late;
  for (int p = 0; p < size_; ++p) {
    if (is_late(p)) late.push_back(p);
  }
  return late;
}

std::string ShmTransport::last_seen(int rank) const {
  const RankArea& area = segment_->area(rank);
  const uint64_t meeting = area.record_meeting.load(std::memory_order_acquire);
  if (meeting == 0) return "it has made no call yet";
  const CallRecord record = area.records[meeting & 1].load();
  std::atomic_thread_fence(std::memory_order_acquire);
  if (area.record_meeting.load(std::memory_order_relaxed) != meeting) return "";
  return fmt::format("its last call was #{}, {}", record.sequence, describe(record));
}

// Whether the rank that is late was last seen on the very core that this one is spinning on.
bool ShmTransport::waits_for_own_core() const {
  if (phase_ == Phase::idle || next_to_look_at_ >= size_) return false;
  // Its line of this meeting is not there yet, so the one before is whole.
  const uint64_t seen = phase_ == Phase::meeting ? meeting_ - 1 : meeting_;
  return seen > 0 &&
         segment_->area(next_to_look_at_).lines[seen & 1].core.load(std::memory_order_relaxed) == own_core();
}

void ShmTransport::interrupt() {
  RankArea& own = segment_->area(rank_);
  own.doorbell.fetch_add(1, std::memory_order_release);
  futex_wake_all(own.doorbell);
}

void ShmTransport::abandon() {
  // Threads read this rank's memory where it is; they notice the failure before their next part.
  for (int p = 0; options_.one_address_space && p < size_; ++p) {
    while (p != rank_ && segment_->area(p).reading.load() != 0) sched_yield();
  }
  phase_ = Phase::idle;
}

void ShmTransport::leave_if_failed() {
  if (segment_->header().failure.load() == 0) [[likely]]
    return;
  abandon();
  throw_ended(segment_->failure());
}

void ShmTransport::throw_if_failed() const {
  if (segment_->header().failure.load(std::memory_order_acquire) != 0) [[unlikely]]
    throw PeerError(segment_->failure());
}

}  // namespace tutti::comm
