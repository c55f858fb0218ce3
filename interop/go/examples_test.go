package interop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// examples are the folders of the official repository's examples, with the test
// that does what the example does.
var examples = map[string]string{
	"admin/group":          "TestAdminGroup",
	"admin/topic":          "TestAdminTopic",
	"producer/acl":         "TestProducerACL",
	"producer/async":       "TestProducerAsync",
	"producer/batch":       "TestProducerBatch",
	"producer/delay":       "TestProducerDelay",
	"producer/delayms":     "TestProducerDelayMs",
	"producer/interceptor": "TestProducerInterceptor",
	"producer/namespace":   "TestProducerNamespace",
	"producer/simple":      "TestProducerSimple",
	"producer/tag":         "TestProducerTag",
	"producer/tls":         "TestProducerTLS",
	"producer/trace":       "TestProducerTrace",
}

// skipped are those without a test.
var skipped = []string{
	"producer/rpc/async",
	"producer/rpc/sync",
	"producer/transaction",
}

func TestEveryOfficialExampleHasAScenario(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/apache/rocketmq-client-go/v2").Output()
	require.NoError(t, err)
	root := filepath.Join(strings.TrimSpace(string(out)), "examples")
	var folders []string
	for _, depth := range []string{"*/*", "*/*/*"} {
		found, err := filepath.Glob(filepath.Join(root, depth, "main.go"))
		require.NoError(t, err)
		for _, f := range found {
			folder, err := filepath.Rel(root, filepath.Dir(f))
			require.NoError(t, err)
			if folder = filepath.ToSlash(folder); !strings.HasPrefix(folder, "consumer/") {
				folders = append(folders, folder)
			}
		}
	}
	known := slices.Concat(slices.Collect(maps.Keys(examples)), skipped)
	assert.ElementsMatch(t, folders, known, "folders of the official repository's examples, and those that have a scenario here or are skipped by name")

	tests := make(map[string]bool)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				tests[fn.Name.Name] = true
			}
		}
	}
	for example, test := range examples {
		assert.True(t, tests[test], "example %s: no test %s", example, test)
	}
}
