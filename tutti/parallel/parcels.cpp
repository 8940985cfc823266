#include "tutti/parallel/parcels.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tutti/core/hash.h"

namespace tutti::parallel {

void ParcelWriter::reserve(int64_t nbytes) {
  const int64_t capacity = bytes_.defined() ? bytes_.numel() : 0;
  if (size_ + nbytes <= capacity) return;
  const Tensor larger = Tensor::empty({std::max(size_ + nbytes, 2 * capacity)}, DType::u8);
  if (size_ > 0) std::memcpy(larger.raw_data(), bytes_.raw_data(), static_cast<size_t>(size_));
  bytes_ = larger;
}

char* ParcelWriter::room(int64_t nbytes) {
  reserve(nbytes);
  const int64_t at = std::exchange(size_, size_ + nbytes);
  return bytes_.defined() ? static_cast<char*>(bytes_.raw_data()) + at : nullptr;
}

Tensor ParcelWriter::take() {
  if (size_ == 0) return Tensor::empty({0}, DType::u8);
  return std::exchange(bytes_, {}).view_as({std::exchange(size_, 0)}, {1}, 0);
}

int64_t ParcelReader::count(int64_t nbytes_each) {
  const auto n = get<int64_t>();
  int64_t nbytes = 0;
  TUTTI_CHECK_ENV(
      n >= 0 && !__builtin_mul_overflow(n, nbytes_each, &nbytes) && nbytes <= static_cast<int64_t>(bytes_.size()),
      "{}: a rank has sent {} values of {} bytes in {} bytes", what_, n, nbytes_each, bytes_.size());
  return n;
}

std::string_view ParcelReader::take(int64_t count, int64_t size) {
  int64_t nbytes = 0;
  TUTTI_CHECK_ENV(
      count >= 0 && !__builtin_mul_overflow(count, size, &nbytes) && nbytes <= static_cast<int64_t>(bytes_.size()),
      "{}: a rank has sent {} bytes; expected {} values of {} bytes behind the first {}", what_, sent_, count, size,
      sent_ - bytes_.size());
  const std::string_view from = bytes_.substr(0, static_cast<size_t>(nbytes));
  bytes_.remove_prefix(from.size());
  return from;
}

namespace {

// What a rank tells each other one before the bytes: their number, or why there are none, and its facts.
constexpr int64_t kRefused = -1, kFailed = -2;
constexpr int64_t kWords = 1 + static_cast<int64_t>(Parcels::kMostFacts);

std::string text_of(const ParcelFact& fact, int64_t value) {
  return fact.is_double ? fmt::format("{}", std::bit_cast<double>(value)) : fmt::format("{}", value);
}

}  // namespace

ParcelExchange::ParcelExchange(const char* what, comm::ProcessGroup* group, const std::function<Parcels()>& make) {
  if (group == nullptr || group->size() == 1) {
    received_ = make().list;
    return;
  }
  const int64_t ranks = group->size();
  const Tensor words = Tensor::empty({ranks, kWords}, DType::i64), theirs = Tensor::empty({ranks, kWords}, DType::i64);
  std::fill_n(words.data<int64_t>(), words.numel(), ParcelFact::kAny);
  const auto tell = [&] { group->all_to_all_single(theirs, words, {.agreement = hash64(what) | 1}); };
  const auto give_up = [&](int64_t why) {
    for (int64_t r = 0; r < ranks; ++r) words.data<int64_t>()[r * kWords] = why;
    try {
      tell();
    } catch (...) {  // others have failed as well; what went wrong here is the news
    }
  };
  Parcels parcels;
  try {
    parcels = make();
    TUTTI_ASSERT(static_cast<int64_t>(parcels.list.size()) == ranks && parcels.facts.size() <= Parcels::kMostFacts,
                 "{}: {} parcels for {} ranks, and {} facts", what, parcels.list.size(), ranks, parcels.facts.size());
  } catch (const UsageError&) {
    give_up(kRefused);
    throw;
  } catch (...) {
    give_up(kFailed);
    throw;
  }
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t* const word = words.data<int64_t>() + r * kWords;
    word[0] = parcels.list[static_cast<size_t>(r)].numel();
    for (size_t i = 0; i < parcels.facts.size(); ++i) word[1 + i] = parcels.facts[i].value;
  }
  tell();
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t size = theirs.data<int64_t>()[r * kWords];
    TUTTI_CHECK(size != kRefused, "{}: rank {} has refused its part of the call; its error says why", what, r);
    if (size == kFailed)
      throw comm::StoppedByPeer(
          fmt::format("{}: rank {} has failed in its part of the call; its error says why", what, r));
  }
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t* const word = theirs.data<int64_t>() + r * kWords;
    for (size_t i = 0; i < parcels.facts.size(); ++i) {
      const ParcelFact& mine = parcels.facts[i];
      TUTTI_CHECK(word[1 + i] == mine.value || word[1 + i] == ParcelFact::kAny || mine.value == ParcelFact::kAny,
                  "{}: {} is {} on rank {} and {} on rank {}; all ranks must have the same", what, mine.what,
                  text_of(mine, mine.value), group->rank(), text_of(mine, word[1 + i]), r);
    }
    received_.push_back(Tensor::empty({r == group->rank() ? 0 : word[0]}, DType::u8));
  }
  // A rank keeps its own parcel, which does not travel.
  const auto me = static_cast<size_t>(group->rank());
  own_ = {me, std::exchange(parcels.list[me], Tensor::empty({0}, DType::u8))};
  work_ = group->all_to_all(received_, parcels.list, {.async = true, .agreement = hash64(what) | 1});
}

std::vector<std::string_view> ParcelExchange::wait() {
  work_.wait();
  if (own_.second.defined()) received_[own_.first] = std::exchange(own_.second, {});
  std::vector<std::string_view> parcels;
  for (const Tensor& parcel : received_) parcels.push_back(bytes_of(parcel));
  return parcels;
}

}  // namespace tutti::parallel
