package aiecmd
import ("testing";"os";"fmt";"strings")
func TestZZ(t *testing.T){ a:=os.Getenv("AIEARGS"); if a=="" {return}; out,err:=execute(strings.Fields(a)...); fmt.Print(out); if err!=nil{fmt.Println("ERR",err)} }
