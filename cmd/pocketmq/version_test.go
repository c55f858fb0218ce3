package main

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersionSaysWhatThisProgramIs(t *testing.T) {
	rest := fmt.Sprintf("\ngo %s %s/%s\nprotocol 479 (RocketMQ 5.3.3)\n", runtime.Version()[len("go"):], runtime.GOOS, runtime.GOARCH)
	main := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision, modified := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for want, info := range map[string]*debug.BuildInfo{
		"version v1.2.3":                          main("v1.2.3"),
		"version (devel)":                         main(""),
		"version (devel) (revision abc)":          main("(devel)", revision, debug.BuildSetting{Key: "vcs.modified", Value: "false"}),
		"version v0.1.0 (revision abc, modified)": main("v0.1.0", revision, modified),
		"version unknown":                         nil,
	} {
		assert.Equal(t, want+rest, versionText(info))
	}

	for _, args := range [][]string{{"version"}, {"--version"}, {"-version"}} {
		got := call(t, "", args...)
		assert.Equal(t, exitClean, got.code, args)
		assert.Contains(t, got.out, rest, args)
		assert.Empty(t, got.err, args)
	}
}

func TestVersionThatCannotBePrintedIsAnError(t *testing.T) {
	var errs bytes.Buffer
	assert.Equal(t, exitError, run(t.Context(), &environment{out: full{}, err: &errs}, []string{"version"}))
	assert.Contains(t, errs.String(), "no space left")
}
