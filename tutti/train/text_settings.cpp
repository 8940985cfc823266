#include "tutti/train/text_settings.h"

#include "tutti/comm/process_group.h"

namespace tutti::train {

generate::SamplingOptions SamplingSettings::over(generate::SamplingOptions defaults) const {
  defaults.temperature = temperature.value_or(defaults.temperature);
  defaults.top_k = top_k.value_or(defaults.top_k);
  defaults.top_p = top_p.value_or(defaults.top_p);
  defaults.min_p = min_p.value_or(defaults.min_p);
  defaults.repetition_penalty = repetition_penalty.value_or(defaults.repetition_penalty);
  defaults.presence_penalty = presence_penalty.value_or(defaults.presence_penalty);
  defaults.frequency_penalty = frequency_penalty.value_or(defaults.frequency_penalty);
  defaults.order = order.value_or(defaults.order);
  defaults.seed = seed.value_or(defaults.seed);
  return defaults;
}

bool TextModelOptions::is_divided() const { return group != nullptr && group->size() > 1; }

}  // namespace tutti::train
