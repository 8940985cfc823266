#include "tutti/parallel/parcels.h"

#include <numeric>
#include <utility>

namespace tutti::parallel {

char* ParcelWriter::room(int64_t nbytes) {
  const size_t at = bytes_.size();
  bytes_.resize(at + static_cast<size_t>(nbytes));
  return bytes_.data() + at;
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
      "{}: a rank has sent {} bytes; expected {} more values of {} bytes in them", what_, bytes_.size(), count, size);
  const std::string_view from = bytes_.substr(0, static_cast<size_t>(nbytes));
  bytes_.remove_prefix(from.size());
  return from;
}

ParcelExchange::ParcelExchange(const char* what, comm::ProcessGroup* group,
                               const std::function<std::vector<std::string>()>& make, uint64_t agreement) {
  if (group == nullptr || group->size() == 1) {
    own_ = std::move(make().at(0));
    return;
  }
  const size_t ranks = static_cast<size_t>(group->size());
  const comm::CallOptions options{.agreement = agreement};
  constexpr int64_t kRefused = -1;
  const Tensor sizes = Tensor::empty({group->size()}, DType::i64), theirs = Tensor::empty({group->size()}, DType::i64);
  std::vector<std::string> parcels;
  try {
    parcels = make();
    TUTTI_ASSERT(parcels.size() == ranks, "{}: {} parcels for {} ranks", what, parcels.size(), ranks);
  } catch (...) {
    std::fill_n(sizes.data<int64_t>(), ranks, kRefused);
    try {
      group->all_to_all_single(theirs, sizes, options);
    } catch (const EnvironmentError&) {  // others have failed as well; what went wrong here is the news
    }
    throw;
  }
  for (size_t r = 0; r < ranks; ++r) sizes.data<int64_t>()[r] = static_cast<int64_t>(parcels[r].size());
  group->all_to_all_single(theirs, sizes, options);
  sizes_.assign(theirs.data<int64_t>(), theirs.data<int64_t>() + ranks);
  for (size_t r = 0; r < ranks; ++r)
    TUTTI_CHECK(sizes_[r] != kRefused, "{}: rank {} has refused its part of the call; its error says why", what, r);
  const std::vector<int64_t> sent(sizes.data<int64_t>(), sizes.data<int64_t>() + ranks);
  sent_ = Tensor::empty({std::accumulate(sent.begin(), sent.end(), int64_t{0})}, DType::u8);
  received_ = Tensor::empty({std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0})}, DType::u8);
  char* to = static_cast<char*>(sent_.raw_data());
  for (std::string& parcel : parcels) {
    if (!parcel.empty()) std::memcpy(to, parcel.data(), parcel.size());
    to += parcel.size();
    parcel = {};
  }
  work_ = group->all_to_all_single(received_, sent_, sizes_, sent, {.async = true, .agreement = agreement});
}

ParcelExchange::~ParcelExchange() = default;

std::vector<std::string_view> ParcelExchange::wait() {
  if (sizes_.empty()) return {own_};
  work_.wait();
  std::vector<std::string_view> parcels;
  const char* from = static_cast<const char*>(received_.raw_data());
  for (const int64_t size : sizes_) {
    parcels.emplace_back(from, static_cast<size_t>(size));
    from += size;
  }
  return parcels;
}

}  // namespace tutti::parallel
