// Tells the ranks that follow a lost one what is done.
#include "tutti/train/observer.h"
#include "tutti/train/run.h"

namespace tutti::train {
namespace {

class Survive final : public Observer {
 public:
  using Observer::Observer;
  void on_step_end() override { run_.survival->note_finished(run_.state.step); }
  void on_end() override { run_.survival->note_over(); }
};

}  // namespace

TUTTI_OBSERVER(survive) = {.turn = Turn::close, .make = make_observer<Survive>};

}  // namespace tutti::train
