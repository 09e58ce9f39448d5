// Test support: single steps of the nested code's arithmetic, run on the device.
#pragma once

#include <vector>

namespace firn::kernels {

std::vector<float> ProbeInverses(const std::vector<float>& steps);    // InverseOfStep
std::vector<float> ProbeQuotients(const std::vector<float>& values);  // DividedBySteps

}  // namespace firn::kernels
