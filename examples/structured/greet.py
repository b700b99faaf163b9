name = input()
print(eval(name))
