package message

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// propConstants returns the values of every constant of reserved.go whose
// name starts with Prop.
func propConstants(t *testing.T) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "reserved.go", nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if strings.HasPrefix(name.Name, "Prop") {
				value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
				require.NoError(t, err)
				found[name.Name] = value
			}
		}
		return true
	})
	return found
}

func TestEveryPropConstantIsReserved(t *testing.T) {
	constants := propConstants(t)
	require.Greater(t, len(constants), 50)
	seen := map[string]string{}
	for name, value := range constants {
		assert.True(t, IsReserved(value), "%s = %q", name, value)
		assert.Empty(t, seen[value], "%s and %s are both %q", name, seen[value], value)
		seen[value] = name
	}
}

func TestOtherNamesAreFree(t *testing.T) {
	for _, name := range []string{"region", "keys", "KEYS ", "", "UNIQ_KEY2", "__RMQ", "__RMQ.TRANSIENT"} {
		assert.False(t, IsReserved(name), "%q", name)
	}
	assert.True(t, IsReserved("__RMQ.TRANSIENT.TOPIC_SYS_FLAG"))
}
