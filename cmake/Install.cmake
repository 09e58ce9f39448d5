# Component `daemon`: programs, unit, user and group, the operator's pages; a configuration where there is none yet.
if(TARGET firnd AND TARGET firn)
  install(TARGETS firnd firnd-gpu firn RUNTIME DESTINATION bin COMPONENT daemon)
  install(FILES deploy/firnd.service DESTINATION lib/systemd/system COMPONENT daemon)
  install(FILES deploy/firnkv.sysusers DESTINATION lib/sysusers.d RENAME firnkv.conf COMPONENT daemon)
  install(FILES docs/operations.md docs/configuration.md docs/cli.md docs/plan.md docs/calibration.md docs/api.md DESTINATION share/doc/firnkv COMPONENT daemon)
  install(DIRECTORY docs/formats docs/decisions docs/examples DESTINATION share/doc/firnkv COMPONENT daemon)
  install(CODE "
    if(NOT EXISTS \"\$ENV{DESTDIR}/etc/firnkv/firnd.toml\")
      file(INSTALL \"${PROJECT_SOURCE_DIR}/deploy/firnd.toml\" DESTINATION /etc/firnkv)
    endif()" COMPONENT daemon)
endif()
