// All candidates there are, indexed by what never varies within a call: dtypes, accumulator, layout, architecture. A
// call looks at the candidates of one bucket and at no others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tutti/codegen/choice/signature.h"

namespace tutti::codegen::choice {

// The layouts of a and b: n means that the elements of a row are contiguous, t means any other strides.
enum class Layout : uint8_t { nn, nt, tn, tt };

struct BucketKey {
  DType a = DType::f32, b = DType::f32, c = DType::f32, accumulator = DType::f32;
  Layout layout = Layout::nn;
  uint16_t arch = 0;

  auto operator<=>(const BucketKey&) const = default;
};

inline BucketKey bucket_of(const Signature& s) {
  const auto is_t = [](const TensorSignature& t) { return t.ndim == 0 || t.strides[t.ndim - 1u] != 1; };
  const int layout = 2 * is_t(s.operands[0]) + is_t(s.operands[1]);
  return {s.operands[0].dtype, s.operands[1].dtype,         s.operands[2].dtype,
          s.accumulator,       static_cast<Layout>(layout), s.arch};
}

// Any thread.
template <class Candidate>
class CandidateSpace {
 public:
  // `make` lists the candidates of a bucket; it is called once per bucket, when a call first asks for it.
  explicit CandidateSpace(std::function<std::vector<Candidate>(const BucketKey&)> make) : make_(std::move(make)) {}

  // Valid for as long as the space.
  std::span<const Candidate> of(const BucketKey& key) {
    const std::lock_guard guard(mutex_);
    const auto found = buckets_.find(key);
    return found != buckets_.end() ? found->second : buckets_.emplace(key, make_(key)).first->second;
  }

 private:
  std::function<std::vector<Candidate>(const BucketKey&)> make_;
  std::mutex mutex_;
  std::map<BucketKey, std::vector<Candidate>> buckets_;
};

}  // namespace tutti::codegen::choice
