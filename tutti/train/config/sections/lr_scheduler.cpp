// [lr_scheduler]: the keys with their defaults, and their rules with other keys.
#include "tutti/train/config/section.h"
#include "tutti/train/step/lr_schedule.h"

namespace tutti::train {
namespace {

std::vector<std::string> decays() { return {lr_decay_names().begin(), lr_decay_names().end()}; }

std::vector<Field> lr_scheduler_keys() {
  return {
      {TUTTI_KEY(lr_scheduler, int64_t, warmup_steps, -1),
       .doc = "steps over which the learning rate rises to its base value; -1: a tenth of training.steps, but at most "
              "200, chosen when the run begins and kept",
       .unit = "steps", .rule = at_least_or_rest(0), .resuming = Resuming::told},
      {TUTTI_KEY(lr_scheduler, double, decay_ratio, -1),
       .doc = "fraction of the run over which the learning rate decays; -1: all steps after the warm-up", .unit = "",
       .rule = {.min = 0, .max = 1, .also = -1}, .resuming = Resuming::told},
      {TUTTI_KEY(lr_scheduler, std::string, decay_type, "linear"), .doc = "shape of the decay", .unit = "",
       .rule = one_of(decays()), .resuming = Resuming::told},
      {TUTTI_KEY(lr_scheduler, double, min_lr_factor, 0.0),
       .doc = "fraction of the base learning rate that the decay approaches", .unit = "", .rule = between(0, 1),
       .resuming = Resuming::told},
  };
}

void check_lr_scheduler(const Config& config, Faults& faults) {
  faults.check(config.lr_scheduler.warmup_steps <= config.training.steps,
               "lr_scheduler.warmup_steps = {} is more than training.steps = {}; lower the one or raise the other",
               config.lr_scheduler.warmup_steps, config.training.steps);
}

}  // namespace

TUTTI_SECTION(lr_scheduler, LrSchedulerConfig, 7) = {
    .name = "lr_scheduler",
    .doc = "The learning rate over the run.",
    .keys = lr_scheduler_keys,
    .check = check_lr_scheduler,
};

}  // namespace tutti::train
