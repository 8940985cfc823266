#include "tutti/parallel/parcels.h"

#include <algorithm>
#include <utility>

namespace tutti::parallel {

char* ParcelWriter::room(int64_t nbytes) {
  const int64_t at = size_, capacity = bytes_.defined() ? bytes_.numel() : 0;
  size_ += nbytes;
  if (size_ > capacity) {
    const Tensor larger = Tensor::empty({std::max(size_, 2 * capacity)}, DType::u8);
    if (at > 0) std::memcpy(larger.raw_data(), bytes_.raw_data(), static_cast<size_t>(at));
    bytes_ = larger;
  }
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
      "{}: a rank has sent {} bytes; expected {} more values of {} bytes in them", what_, bytes_.size(), count, size);
  const std::string_view from = bytes_.substr(0, static_cast<size_t>(nbytes));
  bytes_.remove_prefix(from.size());
  return from;
}

ParcelExchange::ParcelExchange(const char* what, comm::ProcessGroup* group,
                               const std::function<std::vector<Tensor>()>& make, uint64_t agreement) {
  if (group == nullptr || group->size() == 1) {
    received_ = make();
    return;
  }
  const size_t ranks = static_cast<size_t>(group->size());
  const comm::CallOptions options{.agreement = agreement};
  constexpr int64_t kRefused = -1;
  const Tensor sizes = Tensor::empty({group->size()}, DType::i64), theirs = Tensor::empty({group->size()}, DType::i64);
  std::vector<Tensor> parcels;
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
  for (size_t r = 0; r < ranks; ++r) sizes.data<int64_t>()[r] = parcels[r].numel();
  group->all_to_all_single(theirs, sizes, options);
  for (size_t r = 0; r < ranks; ++r)
    TUTTI_CHECK(theirs.data<int64_t>()[r] != kRefused,
                "{}: rank {} has refused its part of the call; its error says why", what, r);
  for (size_t r = 0; r < ranks; ++r) received_.push_back(Tensor::empty({theirs.data<int64_t>()[r]}, DType::u8));
  work_ = group->all_to_all(received_, parcels, {.async = true, .agreement = agreement});
}

std::vector<std::string_view> ParcelExchange::wait() {
  work_.wait();
  std::vector<std::string_view> parcels;
  for (const Tensor& parcel : received_) parcels.push_back(bytes_of(parcel));
  return parcels;
}

}  // namespace tutti::parallel
