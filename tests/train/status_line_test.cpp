#include "tutti/train/report/status_line.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tutti::train {
namespace {

using std::chrono::seconds;

StepRecord record() {
  return {.step = 12, .loss = 3.14159f, .grad_norm = 0.93, .lr = 8e-4, .items_per_s = 12345, .step_ms = 650};
}

// What is written to a file stands in for what a terminal would get.
class Screen {
 public:
  ~Screen() { std::fclose(file_); }
  std::FILE* file() { return file_; }
  std::string text() {
    std::string text(static_cast<size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

 private:
  std::FILE* file_ = std::tmpfile();
};

TEST(DurationText, UsesTheTwoLargestUnits) {
  EXPECT_EQ(duration_text(seconds(45)), "45s");
  EXPECT_EQ(duration_text(seconds(200)), "3m 20s");
  EXPECT_EQ(duration_text(seconds(7505)), "2h 05m");
  EXPECT_EQ(duration_text(seconds(273600)), "3d 04h");
}

TEST(StatusText, SaysEverythingOnOneLine) {
  EXPECT_EQ(status_text(record(), 100, seconds(62)),
            "step 12/100  loss 3.1416  grad_norm 0.93  lr 8.00e-04  12.3k tok/s  650 ms  ETA 1m 02s");
}

TEST(StatusText, AddsTheValidation) {
  StepRecord validated = record();
  validated.val_bits_per_byte = 2.1;
  EXPECT_NE(status_text(validated, 100, seconds(62)).find("  val 2.100 bits/byte  ETA"), std::string::npos);
}

TEST(EtaEstimate, MultipliesThePaceByTheStepsLeft) {
  EtaEstimate eta(100);
  eta.add_step(20, seconds(2));
  EXPECT_EQ(eta.left(), seconds(160));
}

TEST(EtaEstimate, IsHardlyMovedByOneSlowStep) {
  EtaEstimate eta(110);
  eta.add_step(9, seconds(1));
  eta.add_step(10, seconds(11));
  EXPECT_EQ(eta.left(), seconds(200));
}

TEST(StatusLine, PrintsPlainLinesWhenNotATerminal) {
  Screen screen;
  {
    StatusLine line(screen.file(), StatusLine::style_for(screen.file()));
    line.show(record(), 100, seconds(1));
    line.note("saved");
    line.show(record(), 100, seconds(1));
  }
  const std::string status = status_text(record(), 100, seconds(1)) + "\n";
  EXPECT_EQ(screen.text(), status + "saved\n" + status);
}

TEST(StatusLine, RewritesItsLineOnATerminal) {
  Screen screen;
  {
    StatusLine line(screen.file(), {.in_place = true, .colour = false});
    line.show(record(), 100, seconds(1));
    line.show(record(), 100, seconds(1));
    line.note("saved");
    line.show(record(), 100, seconds(1));
  }
  const std::string status = status_text(record(), 100, seconds(1));
  EXPECT_EQ(screen.text(), status + "\r\x1b[K" + status + "\r\x1b[Ksaved\n" + status + "\n");
}

TEST(StatusLine, KeepsValidatedStepsOnATerminal) {
  Screen screen;
  StepRecord validated = record();
  validated.val_bits_per_byte = 2.1;
  {
    StatusLine line(screen.file(), {.in_place = true, .colour = false});
    line.show(validated, 100, seconds(1));
    line.show(validated, 100, seconds(1));
  }
  EXPECT_EQ(screen.text().find('\r'), std::string::npos);
}

TEST(StatusLine, ColoursOnlyWhenAsked) {
  Screen screen;
  {
    StatusLine line(screen.file(), {.in_place = false, .colour = true});
    line.show(record(), 100, seconds(1));
  }
  EXPECT_NE(screen.text().find("\x1b[1mloss 3.1416\x1b[0m"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train
