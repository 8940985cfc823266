// The first lines of a run's log.
#pragma once

#include <string>

namespace tutti::train {

struct Run;

// On rank 0, opens the log of a run that is loaded and says what starts: the notes of the start, text, model, layout.
// `advice`: how the layout could be better, if anything.
void open_log(Run& run, const std::string& advice);

}  // namespace tutti::train
