// A control node, compiled: every part is an executable of its own.
//
// Immutable like the executable it belongs to, and called by any number of threads at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/plan/control_body.h"
#include "tutti/plan/executable.h"

namespace tutti::graph {

// The op of a control node, which is a name and nothing else.
const OpDef& control_op(ControlBody::Kind kind);

// Throws UsageError with `text` unless every element of `condition` is true.
void require_all(const Tensor& condition, const std::string& text);

// While it lives, control steps that this thread runs also run the parts that the data do not choose: for those who
// must know all kernels that the parts ask for. Where such a part fails, so does the step, with an error that names the
// part.
class EveryPartScope {
 public:
  EveryPartScope() : previous_(innermost) { innermost = this; }
  ~EveryPartScope() { innermost = previous_; }
  EveryPartScope(const EveryPartScope&) = delete;
  EveryPartScope& operator=(const EveryPartScope&) = delete;

 private:
  friend class ControlStep;
  static inline constinit thread_local EveryPartScope* innermost = nullptr;
  EveryPartScope* const previous_;
  int parts_around_ = 0;  // how many parts run around the current step that the data did not choose
};

class ControlStep {
 public:
  struct Part {
    std::string name;
    std::vector<ControlBody::Feed> feeds;
    std::shared_ptr<const Executable> executable;
    // Runs the part on memory where its given buffers begin; see Executable::run().
    std::function<std::vector<Tensor>(std::span<const GivenMemory> given, std::span<const Tensor> into)> run;
  };
  ControlStep(const ControlBody& body, const BuildOptions& options);
  // With parts that have been compiled elsewhere, without executables.
  ControlStep(const ControlBody& body, std::vector<Part> parts);

  // UsageError when what must be true is not, or there is no part of the number that input 0 says.
  void check(std::span<const Tensor> inputs) const;
  // Writes the outputs of the node, which are dense, after check(). Throws what the parts throw.
  void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  // The name of the function that the user called.
  const char* name() const { return kind_ == ControlBody::Kind::check ? "check" : text_.c_str(); }
  // The steps of the parts, for people.
  std::string to_string() const;

 private:
  int64_t chosen_part(const Tensor& which) const;
  void run_choice(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  void run_repeat(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  void run_walk(std::span<const Tensor> inputs, std::span<const Tensor> outputs) const;
  // Within an EveryPartScope: runs the parts that are not chosen, whose results are written over afterwards.
  void run_others(size_t chosen, std::span<const Tensor> current, std::span<const Tensor> outputs) const;
  // Within an EveryPartScope: whether a loop has run as many rounds as one does in a part that the data did not choose.
  static bool has_run_enough(int rounds);
  // The results of a part, on memory of their own, that of `current`, or as Executable::run says that of `into`.
  std::vector<Tensor> run_part(size_t part, std::span<const Tensor> current, std::span<const Tensor> into = {}) const;

  ControlBody::Kind kind_;
  std::string text_;
  int32_t carried_, walked_;
  int64_t steps_;
  std::vector<Part> parts_;
};

}  // namespace tutti::graph
