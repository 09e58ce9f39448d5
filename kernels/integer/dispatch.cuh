// From what is known at launch to template arguments. Host code.
#pragma once

#include "kernels/device/launching.cuh"
#include "kernels/integer/launch.h"

namespace firn::kernels {

// f<Value, kBits, kPlaces>()
template <typename F>
cudaError_t ForIntegers(const IntegerLaunch& launch, const F& f) {
  auto for_bits = [&]<typename Value, int kBits>() {
    if (launch.places == Places::kLinear) return f.template operator()<Value, kBits, Places::kLinear>();
    if (launch.places == Places::kAnyRows) return f.template operator()<Value, kBits, Places::kAnyRows>();
    return f.template operator()<Value, kBits, Places::kAny>();
  };
  return ForValue(launch.job.values, [&]<typename Value>() {
    if (launch.job.bits == 8) return for_bits.template operator()<Value, 8>();
    if (launch.job.bits == 4) return for_bits.template operator()<Value, 4>();
    if (launch.job.bits == 3) return for_bits.template operator()<Value, 3>();
    return for_bits.template operator()<Value, 2>();
  });
}

}  // namespace firn::kernels
