// The progress display of training: one line per step on stderr.
//
// On a terminal the line is rewritten in place, and important lines (validations, saves) stay above it. Otherwise
// every step is a separate plain line. Colour is used only on a terminal, and never with NO_COLOR.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "tutti/train/report/metrics.h"

namespace tutti::train {

// "45s", "3m 20s", "2h 05m", "3d 04h".
std::string duration_text(std::chrono::seconds duration);

// Estimates the remaining time from the pace of recent steps.
class EtaEstimate {
 public:
  explicit EtaEstimate(int64_t total_steps) : total_steps_(total_steps) {}
  // `wall` is the time since the previous step ended, including validation and saving.
  void add_step(int64_t step, std::chrono::duration<double> wall);
  std::chrono::seconds left() const;

 private:
  int64_t total_steps_;
  int64_t step_ = 0;
  double seconds_per_step_ = 0;
};

// "step 12/100  loss 3.1416  grad_norm 0.93  lr 8.00e-04  12.3k tok/s  650 ms  val 2.10 bits/byte  ETA 1m 02s".
std::string status_text(const StepRecord& record, int64_t total_steps, std::chrono::seconds left);

class StatusLine {
 public:
  struct Style {
    bool in_place = false;
    bool colour = false;
  };
  // The style for a stream, depending on whether it is a terminal and on NO_COLOR.
  static Style style_for(std::FILE* stream);

  StatusLine(std::FILE* stream, Style style) : stream_(stream), style_(style) {}
  // Terminates an open line.
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const StepRecord& record, int64_t total_steps, std::chrono::seconds left);
  // Prints a line that stays.
  void note(const std::string& text);

 private:
  void clear();
  std::FILE* stream_;
  Style style_;
  bool is_open_ = false;
};

}  // namespace tutti::train
