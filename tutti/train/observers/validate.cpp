// Measures the model on the held-out text, as often as validation.every says and after the last step.
#include "tutti/models/language_model.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/observer.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/step/evaluate.h"
#include "tutti/train/step/run_model.h"

namespace tutti::train {
namespace {

class Validate final : public Observer {
 public:
  using Observer::Observer;
  void on_begin() override {
    if (!is_on() || !run_.log) return;
    const double order2 = order2_bits_per_byte(*run_.data, *run_.tokenizer, run_.validation_rows());
    run_.log->set_order2(order2);
    run_.note(fmt::format("order-2 byte model: {:.4f} bits per byte on the held-out text", order2));
  }
  void on_record(StepRecord& record) override {
    if (!is_on() || !(run_.is_last() || run_.state.step % run_.config.validation.every == 0)) return;
    run_.survival->may_be_lost_at("validating", run_.state.step);
    record.val_bits_per_byte = run_.result.val_bits_per_byte = validate();
  }

 private:
  bool is_on() const { return run_.config.validation.every > 0; }
  double validate() {
    std::optional<parallel::UnshardedScope> whole;  // ranks read unequally often
    if (run_.sharded) whole.emplace(*run_.sharded);
    return bits_per_byte(*run_.model, *run_.data, *run_.tokenizer, run_.validation_rows(), forward_options(run_.config),
                         run_.tensor.evaluators(run_.group), run_.tensor.mesh);
  }
};

}  // namespace

TUTTI_OBSERVER(validate) = {.turn = Turn::measure, .make = make_observer<Validate>};

}  // namespace tutti::train
