package shape

import (
	"net/url"
	"testing"
)

func TestAParameterHasOneNumber(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"params[1]=a": "a", `params={"1":"a"}`: "a", `params=["a"]`: "a", `params={"1":"a"}&params[1]=b`: "b",
		"params[01]=a": "", "params[%2B1]=a": "", "params[1]=a&params[01]=b": "", "params[0]=a": "", "params[-1]=a": "", "params[1=a": "", "params[]=a": "",
		`params={"01":"a"}`: "", `params={"1":"a","01":"b"}`: "", "params[1]=a&params[1]=b": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readParams(q, "params")
		if (err == nil) != (want != "") || got[1] != want {
			t.Errorf("%s: %v, %v", query, got, err)
		}
	}
}
