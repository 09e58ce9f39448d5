// Calibrated scales: the largest magnitude of each head, whatever the pieces in which tokens come.

#include "codecs/scale_calibrator.h"

#include <gtest/gtest.h>

#include <cmath>

namespace firn {
namespace {

TEST(ScaleCalibrator, TakesTheLargestMagnitudeOfEachHead) {
  auto calibrator = ScaleCalibrator::Create(2, 2, 2, 448);
  ASSERT_TRUE(calibrator.ok()) << calibrator.status();
  EXPECT_TRUE(calibrator->Add(0, 2, std::vector<float>{1, -896, 0, 0, 2, 3, 0, 0}).ok());
  EXPECT_EQ(calibrator->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(calibrator->Add(1, 1, std::vector<float>{1, 2, 4, -8}).ok());
  EXPECT_TRUE(calibrator->Add(1, 1, std::vector<float>{-4, 2, 1, 1}).ok());
  auto sections = calibrator->Finish();
  ASSERT_TRUE(sections.ok()) << sections.status();
  EXPECT_EQ(sections->scales, (std::vector<float>{2, 1, 4.0f / 448, 8.0f / 448}));
  EXPECT_TRUE(Artifact::Create(*sections).ok());
}

TEST(ScaleCalibrator, RefusesWhatMeansNothing) {
  EXPECT_EQ(ScaleCalibrator::Create(1, 1, 2, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScaleCalibrator::Create(1, 1, 2, NAN).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScaleCalibrator::Create(0, 1, 2, 448).status().code(), absl::StatusCode::kInvalidArgument);
  auto calibrator = ScaleCalibrator::Create(1, 1, 2, 448);
  ASSERT_TRUE(calibrator.ok());
  EXPECT_FALSE(calibrator->Add(1, 1, std::vector<float>{1, 2}).ok());
  EXPECT_FALSE(calibrator->Add(0, 1, std::vector<float>{1}).ok());
  EXPECT_FALSE(calibrator->Add(0, 1, std::vector<float>{1, INFINITY}).ok());
  EXPECT_FALSE(calibrator->Finish().ok());  // What was refused left nothing behind.
}

TEST(ScaleCalibrator, TheSmallestScaleIsANormalNumber) {
  auto calibrator = ScaleCalibrator::Create(1, 1, 1, 448);
  ASSERT_TRUE(calibrator.ok());
  ASSERT_TRUE(calibrator->Add(0, 1, std::vector<float>{1e-37f}).ok());
  EXPECT_EQ(calibrator->Finish()->scales[0], std::numeric_limits<float>::min());
}

}  // namespace
}  // namespace firn
