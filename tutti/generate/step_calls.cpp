#include "tutti/generate/step_calls.h"

#include <cstring>
#include <map>
#include <type_traits>

#include "tutti/core/error.h"

namespace tutti::generate {
namespace {

// Either side passes the same members in the same order: `walk` below.
class Writer {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void operator()(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void operator()(const std::vector<T>& values) {
    (*this)(static_cast<uint64_t>(values.size()));
    for (const T& value : values) (*this)(value);
  }
  void operator()(const std::map<int32_t, double>& values) {
    (*this)(static_cast<uint64_t>(values.size()));
    for (const auto& [id, value] : values) (*this)(id), (*this)(value);
  }

  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void operator()(T& value) {
    TUTTI_ASSERT(left_.size() >= sizeof(T), "calls of an engine: {} bytes are left where {} are read", left_.size(),
                 sizeof(T));
    std::memcpy(&value, left_.data(), sizeof(T));
    left_.remove_prefix(sizeof(T));
  }
  template <class T>
  void operator()(std::vector<T>& values) {
    values.resize(count(sizeof(T)));
    for (T& value : values) (*this)(value);
  }
  void operator()(std::map<int32_t, double>& values) {
    for (size_t left = count(sizeof(int32_t) + sizeof(double)); left > 0; --left) {
      int32_t id;
      (*this)(id);
      (*this)(values[id]);
    }
  }
  // Reads how many things follow, each of which takes so many bytes at least; more than that cannot follow.
  size_t count(size_t least) {
    uint64_t count;
    (*this)(count);
    TUTTI_ASSERT(count <= left_.size() / least, "calls of an engine: {} things in {} bytes", count, left_.size());
    return count;
  }
  bool is_done() const { return left_.empty(); }

 private:
  std::string_view left_;
};

template <class Side, class Request>
void walk(Side& side, Request& request) {
  side(request.prompt);
  auto& sampling = request.sampling;
  for (auto* number : {&sampling.temperature, &sampling.top_p, &sampling.min_p, &sampling.repetition_penalty,
                       &sampling.presence_penalty, &sampling.frequency_penalty})
    side(*number);
  side(sampling.top_k);
  side(sampling.logit_bias);
  side(sampling.order);
  side(sampling.seed);
  side(request.max_tokens);
  side(request.min_tokens);
  side(request.ends);
  side(request.suppressed);
  side(request.top_log_probabilities);
  side(request.prompt_log_probabilities);
  side(request.slides);
}

}  // namespace

std::string bytes_of(const StepCalls& calls) {
  Writer writer;
  writer(static_cast<uint64_t>(calls.submitted.size()));
  for (const auto& [id, request] : calls.submitted) writer(id), walk(writer, request);
  writer(calls.cancelled);
  writer(calls.late);
  writer(calls.ends);
  return std::move(writer.bytes);
}

StepCalls step_calls_in(std::string_view bytes) {
  Reader reader(bytes);
  StepCalls calls;
  calls.submitted.resize(reader.count(sizeof(RequestId)));
  for (auto& [id, request] : calls.submitted) reader(id), walk(reader, request);
  reader(calls.cancelled);
  reader(calls.late);
  reader(calls.ends);
  TUTTI_ASSERT(reader.is_done(), "calls of an engine: bytes behind their end");
  return calls;
}

}  // namespace tutti::generate
