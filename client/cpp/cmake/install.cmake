# libfirnkv.so and its headers, for find_package(firnkv). gRPC and protobuf stay inside: a program that uses them itself, in
# whatever version its distribution has, does not meet ours. (It may not register the messages of firn.v1 a second time.)

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

add_library(firnkv SHARED $<TARGET_OBJECTS:firn_client>)
add_library(firnkv::firnkv ALIAS firnkv)
target_link_libraries(firnkv PRIVATE firn_base firn_proto firn_toml PUBLIC absl::status absl::statusor)
target_link_options(firnkv PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports.map)
target_include_directories(firnkv PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(firnkv PUBLIC cxx_std_20)
set_target_properties(firnkv PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION 0
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/exports.map)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/firnkv)
install(TARGETS firnkv EXPORT firnkvTargets COMPONENT firnkv)
install(DIRECTORY include/firnkv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT firnkv)
install(EXPORT firnkvTargets NAMESPACE firnkv:: DESTINATION ${package_dir} COMPONENT firnkv)
configure_package_config_file(cmake/firnkvConfig.cmake.in firnkvConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(firnkvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/firnkvConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/firnkvConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT firnkv)
