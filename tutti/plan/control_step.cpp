#include "tutti/plan/control_step.h"

#include <algorithm>

#include "tutti/ops/copy.h"

namespace tutti::graph {
namespace {

bool is_true(const Tensor& t) { return t.item_int() != 0; }

// `target` is dense. Nothing to do where the part wrote there itself.
void copy_into(const Tensor& target, const Tensor& source) {
  if (source.storage().get() == target.storage().get()) return;
  const auto in_a_row = [](const Tensor& t) { return t.view_as({t.numel()}, {1}, t.offset()); };
  if (source.is_contiguous()) copy_elements(in_a_row(target), in_a_row(source));
  else copy_(target, source);
}

}  // namespace

void require_all(const Tensor& condition, const std::string& text) {
  const Tensor dense = to_contiguous(condition);
  const auto* elements = static_cast<const uint8_t*>(dense.raw_data());
  if (!std::all_of(elements, elements + dense.numel(), [](uint8_t e) { return e != 0; })) throw UsageError(text);
}

ControlStep::ControlStep(const ControlBody& body, const BuildOptions& options)
    : kind_(body.kind), text_(body.text), carried_(body.carried), walked_(body.walked), steps_(body.steps) {
  for (const ControlBody::Part& part : body.parts) {
    BuildOptions own = options;
    own.name = fmt::format("{}: {}", options.name, part.name);
    own.partition = {};  // a part lives too shortly for a budget
    const auto executable = std::make_shared<const Executable>(part.graph, own);
    parts_.push_back({part.name, part.feeds, executable,
                      [executable](std::span<const GivenMemory> given, std::span<const Tensor> into) {
                        return executable->run(given, into);
                      }});
  }
}

ControlStep::ControlStep(const ControlBody& body, std::vector<Part> parts)
    : kind_(body.kind),
      text_(body.text),
      carried_(body.carried),
      walked_(body.walked),
      steps_(body.steps),
      parts_(std::move(parts)) {}

void ControlStep::check(std::span<const Tensor> inputs) const {
  if (kind_ == ControlBody::Kind::check) require_all(inputs[0], text_);
  if (kind_ != ControlBody::Kind::choose) return;
  const auto count = static_cast<int64_t>(parts_.size());
  const int64_t part = chosen_part(inputs[0]);
  TUTTI_CHECK(part >= 0 && part < count, "{}: the index is {}; expected 0 to {}, one of the branches", text_, part,
              count - 1);
}

int64_t ControlStep::chosen_part(const Tensor& which) const {
  return which.dtype() == DType::boolean ? !is_true(which) : which.item_int();
}

void ControlStep::run(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  switch (kind_) {
    case ControlBody::Kind::check:
      return;
    case ControlBody::Kind::choose:
      return run_choice(inputs, outputs);
    case ControlBody::Kind::repeat:
      return run_repeat(inputs, outputs);
    case ControlBody::Kind::walk:
      return run_walk(inputs, outputs);
  }
}

std::vector<Tensor> ControlStep::run_part(size_t part, std::span<const Tensor> current,
                                          std::span<const Tensor> into) const {
  std::vector<GivenMemory> given;
  given.reserve(parts_[part].feeds.size());
  for (const ControlBody::Feed& feed : parts_[part].feeds) {
    const Tensor& t = current[static_cast<size_t>(feed.input)];
    given.push_back({t.storage(), t.offset() * itemsize(t.dtype()) + feed.first_byte});
  }
  return parts_[part].run(given, into);
}

namespace {

// Calls fn(). An error of Tutti is thrown on with a text that names the part, as one of its base class; others as they
// are, such as that of memory which has run out.
template <class Fn>
void naming_the_part(const std::string& part, Fn fn) {
  const auto text = [&](const Error& error) {
    return fmt::format(
        "the {}, which is not chosen here, cannot run on these tensors: {}. Each part runs once while a "
        "package is made, so that its kernels are known: give an example on which every part can run",
        part, error.what());
  };
  try {
    fn();
  } catch (const UsageError& error) {
    throw UsageError(text(error));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(text(error));
  } catch (const InternalError& error) {
    throw InternalError(text(error));
  }
}

// Adds one to a number while it lives.
class Counted {
 public:
  explicit Counted(int& number) : number_(++number) {}
  ~Counted() { --number_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int& number_;
};

}  // namespace

void ControlStep::run_others(size_t chosen, std::span<const Tensor> current, std::span<const Tensor> outputs) const {
  EveryPartScope* const scope = EveryPartScope::innermost;
  if (scope == nullptr) [[likely]]
    return;
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (part == chosen) continue;
    const Counted around(scope->parts_around_);
    naming_the_part(parts_[part].name, [&] {
      const std::vector<Tensor> results = run_part(part, current);
      for (size_t k = 0; k < std::min(results.size(), outputs.size()); ++k) copy_into(outputs[k], results[k]);
    });
  }
}

// The function may rely on never being in such a part, where its loops may not end.
bool ControlStep::has_run_enough(int rounds) {
  constexpr int kRoundsOfOthers = 2;
  const EveryPartScope* const scope = EveryPartScope::innermost;
  return scope != nullptr && scope->parts_around_ > 0 && rounds == kRoundsOfOthers;
}

void ControlStep::run_choice(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  const auto chosen = static_cast<size_t>(chosen_part(inputs[0]));
  run_others(chosen, inputs, outputs);
  const std::vector<Tensor> results = run_part(chosen, inputs, outputs);
  for (size_t k = 0; k < results.size(); ++k) copy_into(outputs[k], results[k]);
}

void ControlStep::run_repeat(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  std::vector<Tensor> current(inputs.begin(), inputs.end());
  const auto carried = static_cast<size_t>(carried_);
  for (size_t i = 0; i < carried; ++i) current[i] = contiguous(current[i]);
  run_others(0, current, outputs);
  for (int round = 0; is_true(run_part(0, current)[0]); ++round) {
    if (has_run_enough(round)) break;
    const std::vector<Tensor> next = run_part(1, current);
    for (size_t i = 0; i < carried; ++i) current[i] = contiguous(next[i]);
  }
  for (size_t i = 0; i < carried; ++i) copy_into(outputs[i], current[i]);
}

void ControlStep::run_walk(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const {
  std::vector<Tensor> current(inputs.begin(), inputs.end());
  const auto carried = static_cast<size_t>(carried_), walked = static_cast<size_t>(walked_);
  for (size_t i = 0; i < carried; ++i) current[i] = contiguous(current[i]);
  // Element `t` of dim 0.
  const auto at = [](const Tensor& x, int64_t t) {
    Extents sizes, strides;
    for (size_t d = 1; d < x.extents().size(); ++d) sizes.push_back(x.extents()[d]), strides.push_back(x.strides()[d]);
    return x.view_as(sizes, strides, x.offset() + t * x.strides()[0]);
  };
  for (int64_t t = 0; t < steps_; ++t) {
    for (size_t i = carried; i < carried + walked; ++i) current[i] = at(inputs[i], t);
    std::vector<Tensor> into(outputs.size());
    for (size_t k = carried; k < outputs.size(); ++k) into[k] = at(outputs[k], t);
    const std::vector<Tensor> results = run_part(0, current, into);
    for (size_t i = 0; i < carried; ++i) current[i] = contiguous(results[i]);
    for (size_t k = carried; k < results.size(); ++k) copy_into(into[k], results[k]);
  }
  for (size_t i = 0; i < carried; ++i) copy_into(outputs[i], current[i]);
}

std::string ControlStep::to_string() const {
  if (kind_ == ControlBody::Kind::check) return fmt::format("  \"{}\"\n", text_);
  std::string text;
  for (const Part& part : parts_) {
    text += fmt::format("  {}:\n", part.name);
    if (part.executable != nullptr) text += indented(part.executable->to_string(), "    ");
  }
  return text;
}

}  // namespace tutti::graph
