// Tells the digest of the last checkpoint, which is the same for the same run on any layout.
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/observer.h"
#include "tutti/train/run.h"

namespace tutti::train {
namespace {

class Digest final : public Observer {
 public:
  using Observer::Observer;
  void on_end() override {
    if (!run_.log || run_.saved != run_.state.step) return;
    const Digests digests = read_state(run_.checkpoints() / fmt::format("step-{}", run_.saved)).digests;
    run_.note(fmt::format("digest of the {} tensors of step {}: {}", digests.size(), run_.saved, digest_of(digests)));
    if (run_.saved < run_.config.training.steps)
      run_.note(fmt::format("stopped after step {}; the same command {}goes on from there", run_.saved,
                            run_.result.interrupted ? "" : "without --stop-at "));
  }
};

}  // namespace

TUTTI_OBSERVER(digest) = {.turn = Turn::close, .make = make_observer<Digest>};

}  // namespace tutti::train
